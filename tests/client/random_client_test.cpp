// SPDX-License-Identifier: Apache-2.0
// Random lives of a client with few places for pending updates, between a coordinator of several
// runs that commits late and a disk that is full at times and crashes the process at others: while
// the disk loses nothing, each training begins with the state of the last update that counted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "core/base/digest.h"
#include "core/client/client_shell.h"
#include "core/sim/simulated_disk.h"
#include "core/sim/virtual_scheduler.h"
#include "core/wire/limits.h"
#include "core/wire/update_head.h"

namespace starling::client {
namespace {

using namespace std::chrono_literals;
using Fault = sim::SimulatedDisk::Fault;

constexpr std::uint64_t kRuns = 5;
constexpr std::uint64_t kStatelessRun = 5;
constexpr std::uint32_t kRunKey = 77;
constexpr std::size_t kFloats = 10;

// Each piece of work waits for its step.
class SteppedComputation final : public Computation {
 public:
  void submit(Work work, std::function<void()> done) override {
    waiting_.emplace_back(std::move(work), std::move(done));
  }
  bool run_one() {
    if (waiting_.empty()) return false;
    const auto [work, done] = std::move(waiting_.front());
    waiting_.pop_front();
    work(0);
    if (done) done();
    return true;
  }
  void drop_all() { waiting_.clear(); }

 private:
  std::deque<std::pair<Work, std::function<void()>>> waiting_;
};

class QueueLink final : public Link {
 public:
  void dial() override { is_dialled = true; }
  void hang_up() override { cut(); }
  void send(const protocol::Envelope& envelope) override {
    if (is_up) to_coordinator.push_back(envelope);
  }
  void cut() {
    is_dialled = is_up = false;
    to_coordinator.clear();
    to_client.clear();
  }

  bool is_dialled = false;
  bool is_up = false;
  std::deque<protocol::Envelope> to_coordinator;
  std::deque<protocol::Envelope> to_client;
};

SharedBytes vector_with(float value) {
  std::vector<float> values(kFloats, value);
  return SharedBytes::own(to_bytes(as_bytes(std::span<const float>(values))));
}

float value_in(const SharedBytes& vector) {
  float value = 0;
  std::memcpy(&value, vector.view().data(), sizeof value);
  return value;
}

StateSnapshot state_with(float value) {
  strategy::State<float> made;
  made.vectors["control"] = {value};
  return std::make_shared<const strategy::State<float>>(std::move(made));
}

// Counts at most one update of the client a round. An update's value names its training.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(QueueLink& link) : link_(link) {
    for (std::uint64_t run = 1; run <= kRuns; ++run) runs_[run].id = RunId(run);
  }

  // Of a training: the value of the state that it must begin with.
  float expected_state(TaskId task) const { return tasks_.at(task).expected_state; }
  std::size_t refused() const { return refused_; }
  std::uint64_t counted() const { return counted_; }
  Round round_of(std::uint64_t run) const { return runs_.at(run).round; }
  bool is_open(std::uint64_t run) const { return runs_.at(run).open.has_value(); }
  bool has_client_at_work() const {
    return std::ranges::any_of(
        runs_, [](const auto& entry) { return entry.second.open && !entry.second.received; });
  }

  // The client has one task at a time, until its update is received.
  void ask(std::uint64_t number) {
    Run& run = runs_.at(number);
    if (run.open || has_client_at_work()) return;
    run.open = TaskId(tasks_.size() + 1);
    run.abandoned.reset();
    tasks_[*run.open] = {number, run.round, run.counted_value};
    send_plan(run);
  }
  void commit(std::uint64_t number) {
    Run& run = runs_.at(number);
    if (!run.received) return;
    ++run.round;
    ++counted_;
    run.counted = {*run.open, run.round};
    if (number != kStatelessRun) run.counted_value = *run.received;
    tasks_.at(*run.open).has_counted = true;
    end_round(run);
  }
  void commit_without_client(std::uint64_t number) {
    Run& run = runs_.at(number);
    ++run.round;
    end_round(run);
  }
  // The next one of the round repeats it; nobody is told before the round is over.
  void end_attempt(std::uint64_t number) {
    Run& run = runs_.at(number);
    if (run.open) run.abandoned = run.open;
    close(run);
  }

  void hear(const protocol::Envelope& envelope) {
    const protocol::Message& message = envelope.message;
    if (std::get_if<protocol::Hello>(&message)) {
      send(protocol::Welcome{.federation = "f", .client = "c", .heartbeat = 10s});
      for (auto& [number, run] : runs_) {
        if (run.open && !run.received) send_plan(run);
      }
    } else if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
      send(protocol::Pong{ping->nonce});
    } else if (const auto* request = std::get_if<protocol::ModelRequest>(&message)) {
      const Run* run = run_with(request->task);
      if (run == nullptr) return tell_outcome(request->task);
      if (request->limit > request->offset) {
        send(protocol::Chunk{request->task, 0}, model_of(*run));
      }
    } else if (const auto* offer = std::get_if<protocol::UpdateOffer>(&message)) {
      const Run* run = run_with(offer->head.task);
      if (run == nullptr) return tell_outcome(offer->head.task);
      EXPECT_TRUE(offer->head.base.matches(base_of(*run)));
      if (!run->received) {
        send(protocol::UpdateAccept{offer->head.task, 0, offer->head.payload_bytes});
      }
    } else if (const auto* chunk = std::get_if<protocol::Chunk>(&message)) {
      Run* run = run_with(chunk->task);
      if (run == nullptr || run->received) return;
      run->received = value_in(envelope.payload);
      send(protocol::UpdateReceived{chunk->task});
    } else if (const auto* failed = std::get_if<protocol::TaskFailed>(&message)) {
      EXPECT_EQ(failed->code, kMemoryInUse) << failed->message;
      if (Run* run = run_with(failed->task)) {
        ++refused_;
        close(*run);
      }
      send(protocol::TaskEnded{failed->task, failed->code, failed->message});
    }
  }

 private:
  struct Run {
    RunId id;
    Round round = 0;
    protocol::CountedTask counted = {};
    float counted_value = 0;
    std::optional<TaskId> open = {};
    std::optional<TaskId> abandoned = {};  // of an earlier attempt at the round
    std::optional<float> received = {};    // the value of the open task's update
  };
  struct Task {
    std::uint64_t run = 0;
    Round base_round = 0;
    float expected_state = 0;
    bool has_counted = false;
  };

  void end_round(Run& run) {
    if (run.open) tell_outcome(*run.open);
    if (const auto abandoned = std::exchange(run.abandoned, std::nullopt)) tell_outcome(*abandoned);
    close(run);
  }
  static void close(Run& run) {
    run.open.reset();
    run.received.reset();
  }
  static SharedBytes model_of(const Run& run) {
    return vector_with(static_cast<float>(1000 * run.id.value() + run.round));
  }
  static update::ModelVersion base_of(const Run& run) {
    return {run.id, run.round, sha256(model_of(run).view()), kRunKey};
  }
  Run* run_with(TaskId open) {
    for (auto& [number, run] : runs_) {
      if (run.open == open) return &run;
    }
    return nullptr;
  }
  void send(protocol::Message message, SharedBytes payload = {}) {
    if (link_.is_up) link_.to_client.push_back({std::move(message), std::move(payload)});
  }
  void send_plan(const Run& run) {
    send(protocol::RoundPlan{
        .task = *run.open,
        .run = run.id,
        .round = run.round + 1,
        .rounds = 100000,
        .attempt = 1,
        .base = base_of(run),
        .model_bytes = kFloats * sizeof(float),
        .schema = {.vectors = {{.name = "model", .elements = kFloats}}},
        .last_counted = run.counted,
    });
  }
  // As the store knows it: nothing yet while an attempt is over and its round is not.
  void tell_outcome(TaskId id) {
    const Task& task = tasks_.at(id);
    const RunId run(task.run);
    if (task.has_counted) {
      send(protocol::RoundCommitted{id, run, task.base_round + 1, {}});
    } else if (runs_.at(task.run).round > task.base_round) {
      send(protocol::TaskEnded{id, "round-closed", "the round closed without this update"});
    }
  }

  QueueLink& link_;
  std::map<std::uint64_t, Run> runs_;
  std::map<TaskId, Task> tasks_;
  std::size_t refused_ = 0;
  std::uint64_t counted_ = 0;
};

class RandomClient {
 public:
  RandomClient(std::uint64_t seed, std::size_t places) : rng_({.seed = seed}), places_(places) {
    disk_.set_fault_injector([this](const auto&) {
      if (const auto crash = std::exchange(crash_, std::nullopt)) return *crash;
      return is_full_ ? Fault::kFull : Fault::kNone;
    });
    start();
  }

  void live(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      try {
        take_step();
      } catch (const sim::ProcessCrash&) {
        start();
      }
    }
  }
  // With a disk and a link that are well, each run counts an update once more.
  void finish() {
    is_full_ = false;
    crash_.reset();
    for (std::uint64_t run = 1; run <= kRuns; ++run) {
      run_until([&] { return !coordinator.has_client_at_work(); });
      coordinator.commit(run);
      coordinator.commit_without_client(run);
    }
    break_link();  // it asks about all when it comes back
    run_until([&] { return shell_->machine().pending_updates() == 0; });
    const std::size_t refused = coordinator.refused();
    for (std::uint64_t run = 1; run <= kRuns; ++run) {
      const std::uint64_t counted = coordinator.counted();
      coordinator.ask(run);
      run_until([&] { return !coordinator.has_client_at_work(); });
      coordinator.commit(run);
      ASSERT_EQ(coordinator.counted(), counted + 1) << "of run " << run;
      run_until([&] { return shell_->machine().pending_updates() == 0; });
    }
    EXPECT_EQ(coordinator.refused(), refused);
  }

 private:
  QueueLink link_;

 public:
  FakeCoordinator coordinator{link_};

 private:
  // A new process on the same disk.
  void start() {
    shell_.reset();
    link_.cut();
    disk_work_.drop_all();
    training_.drop_all();
    const bool was_full = std::exchange(is_full_, false);
    crash_.reset();
    auto left = pending_.load(log_);
    ASSERT_TRUE(left) << left.error().message();
    is_full_ = was_full;
    ClientOptions options{.pending_updates_max = places_};
    ClientShell::Handlers handlers;
    handlers.on_train = [this](const Train& task) {
      check(task);
      return nullptr;
    };
    shell_ = std::make_unique<ClientShell>(
        ClientShell::World{scheduler_, link_, pending_, disk_work_, training_,
                           [this](const Train& task, Trainer*, const std::atomic<bool>& stop,
                                  unsigned) -> Result<PendingUpdate> {
                             if (stop) return retry("stopped", "as told");
                             return train(task);
                           }},
        std::move(options), Rng({.seed = rng_.next_u64()}), std::move(*left), std::move(handlers));
    shell_->handle(Tick{});
  }

  void check(const Train& task) const {
    if (task.plan.run == RunId(kStatelessRun)) return;
    EXPECT_FALSE(task.state_lost) << "in run " << task.plan.run.value();
    const float state = task.state ? task.state->vectors.at("control").at(0) : 0;
    EXPECT_EQ(state, coordinator.expected_state(task.plan.task))
        << "in run " << task.plan.run.value() << " round " << task.plan.round;
  }
  PendingUpdate train(const Train& task) {
    const auto value = static_cast<float>(++trainings_);
    const SharedBytes payload = vector_with(value);
    const bool has_state = task.plan.run != RunId(kStatelessRun);
    return {{.task = task.plan.task,
             .base = task.plan.base,
             .weight = 1,
             .vectors = task.plan.schema.vectors,
             .payload_bytes = payload.size(),
             .payload_checksum = checksum(payload.view())},
            payload,
            has_state ? state_with(value) : nullptr};
  }

  void take_step() {
    const std::uint64_t run = 1 + rng_.below(kRuns);
    const std::uint64_t what = rng_.below(1000);
    if (what < 200) {
      deliver_to_client();
    } else if (what < 400) {
      deliver_to_coordinator();
    } else if (what < 500) {
      training_.run_one();
    } else if (what < 650) {
      disk_work_.run_one();
    } else if (what < 750) {
      coordinator.ask(run);
    } else if (what < 800) {
      coordinator.commit(run);
    } else if (what < 805) {
      coordinator.commit_without_client(run);
    } else if (what < 815) {
      coordinator.end_attempt(run);
    } else if (what < 980) {
      if (!link_.is_up || rng_.below(8) == 0) pass_time();  // few pings, many attempts to connect
    } else if (what < 984) {
      break_link();
    } else if (what < 986) {
      is_full_ = true;
    } else if (what < 994) {
      is_full_ = false;
    } else if (what < 996) {
      start();
    } else {
      crash_ =
          std::array{Fault::kCrashBefore, Fault::kTornWrite, Fault::kCrashAfter}[rng_.below(3)];
    }
  }
  bool deliver_to_client() {
    if (link_.to_client.empty()) return false;
    protocol::Envelope next = std::move(link_.to_client.front());
    link_.to_client.pop_front();
    shell_->handle(Received{std::move(next)});
    return true;
  }
  bool deliver_to_coordinator() {
    if (link_.to_coordinator.empty()) return false;
    const protocol::Envelope next = std::move(link_.to_coordinator.front());
    link_.to_coordinator.pop_front();
    coordinator.hear(next);
    return true;
  }
  void pass_time() {
    if (link_.is_dialled && !link_.is_up) {
      link_.is_up = true;
      shell_->handle(Connected{});
    } else {
      scheduler_.run_one();
    }
  }
  void break_link() {
    if (!link_.is_up) return;
    link_.cut();
    shell_->handle(Disconnected{retry("connection-lost", "gone")});
  }
  template <class Condition>
  void run_until(const Condition& condition) {
    for (int i = 0; i < 10000; ++i) {
      if (deliver_to_client() || deliver_to_coordinator() || training_.run_one() ||
          disk_work_.run_one()) {
        continue;
      }
      if (condition()) return;
      pass_time();
    }
    ADD_FAILURE() << "nothing happens any more";
  }

  Rng rng_;
  const std::size_t places_;
  bool is_full_ = false;
  std::optional<Fault> crash_;  // of the next change
  std::uint64_t trainings_ = 0;
  NullLog log_;
  sim::VirtualScheduler scheduler_;
  sim::SimulatedDisk disk_{1};
  SteppedComputation disk_work_;
  SteppedComputation training_;
  PendingStore pending_{disk_,
                        "pending",
                        {wire::encode_update_head, wire::decode_update_head, wire::kHeaderBytesMax},
                        {.updates_max = places_}};
  std::unique_ptr<ClientShell> shell_;
};

class RandomClientTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(RandomClientTest, AClientThatLosesNoFileLosesNoState) {
  std::uint64_t counted = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 50 && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomClient client(seed, GetParam());
    client.live(3000);
    if (!HasFailure()) client.finish();
    counted += client.coordinator.counted();
    refused += client.coordinator.refused();
  }
  EXPECT_GT(counted, 500U) << "or the test shows nothing";
  EXPECT_GT(refused, 100U);
}

INSTANTIATE_TEST_SUITE_P(Places, RandomClientTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace starling::client

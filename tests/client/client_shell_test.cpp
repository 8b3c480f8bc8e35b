// SPDX-License-Identifier: Apache-2.0
// The client's shell in virtual time: what its machine's actions become, and what is left of them
// when its process dies or its disk breaks.
#include "core/client/client_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/digest.h"
#include "core/sim/simulated_disk.h"
#include "core/sim/virtual_computation.h"
#include "core/wire/limits.h"
#include "core/wire/update_head.h"

namespace starling::client {
namespace {

using namespace std::chrono_literals;
using Fault = sim::SimulatedDisk::Fault;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TaskId kShellTask(5);

class RecordingLink final : public Link {
 public:
  void dial() override { calls.emplace_back("dial"); }
  void hang_up() override { calls.emplace_back("hang up"); }
  void send(const protocol::Envelope& envelope) override {
    if (std::holds_alternative<protocol::UpdateOffer>(envelope.message))
      calls.emplace_back("offer");
  }
  std::vector<std::string> calls;
};

class ClientShellTest : public ::testing::Test {
 protected:
  ClientShellTest() { restart(); }

  // A new process on the same disk.
  void restart() {
    shell.reset();
    auto left = pending.load(log);
    ASSERT_TRUE(left) << left.error().message();
    pending_found = left->pending.size();
    states_found = left->states.size();
    ClientShell::Handlers handlers;
    handlers.on_hang_up = [this](const Error& reason) {
      seen.push_back("hung up: " + reason.code());
    };
    handlers.on_say = [this](const Say& say) { seen.push_back(say.line); };
    handlers.on_disk_broken = [this](const Error& error) {
      seen.push_back("broken: " + error.code());
    };
    shell = std::make_unique<ClientShell>(
        ClientShell::World{
            scheduler, link, pending, immediate, training,
            [this](const Train& task, Trainer*, const std::atomic<bool>& stop, unsigned) {
              ++trainings;
              return stop ? Result<PendingUpdate>(retry("stopped", "as told")) : update(task);
            }},
        ClientOptions{.transfer = {.chunk_bytes_max = 1000, .window_bytes = 1000}},
        Rng({.seed = 1}), std::move(*left), std::move(handlers));
  }
  PendingUpdate update(const Train& task) const {
    return {{.task = task.plan.task,
             .base = task.plan.base,
             .weight = 1,
             .vectors = task.plan.schema.vectors,
             .payload_bytes = base.size(),
             .payload_checksum = checksum(base.view())},
            base,
            state};
  }
  void hear(protocol::Message message, SharedBytes payload = {}) {
    shell->handle(Received{{std::move(message), std::move(payload)}});
  }
  // The plan and its model.
  void send_task(TaskId task, Round round, const SharedBytes& model) {
    hear(protocol::RoundPlan{.task = task,
                             .run = RunId(1),
                             .round = round,
                             .rounds = 9,
                             .attempt = 1,
                             .base = {RunId(1), round - 1, sha256(model.view())},
                             .model_bytes = model.size(),
                             .schema = {.vectors = {{.name = "model", .elements = 10}}}});
    hear(protocol::Chunk{task, 0}, model);
  }
  // Until the training is under way.
  void begin_task() {
    shell->handle(Tick{});
    shell->handle(Connected{});
    hear(protocol::Welcome{.federation = "f", .client = "c", .heartbeat = 10s});
    send_task(kShellTask, 1, base);
    ASSERT_EQ(shell->machine().activity(), ClientMachine::Activity::kTraining);
  }
  void run_until(TimePoint time) {
    bool there = false;
    scheduler.schedule(time, [&] { there = true; });
    while (!there) scheduler.run_one();
  }
  void next_change(Fault fault) {
    disk.set_fault_injector([fault, used = false](const auto&) mutable {
      return std::exchange(used, true) ? Fault::kNone : fault;
    });
  }

  const SharedBytes base = SharedBytes::own(Bytes(40, std::byte{7}));
  ComputePool pool{1};
  sim::VirtualScheduler scheduler;
  sim::ImmediateComputation immediate{scheduler};
  sim::SharedProcessors processors{scheduler, pool};
  sim::TimedComputation training{processors, [] { return Duration(1s); }};
  sim::SimulatedDisk disk{1};
  PendingStore pending{disk,
                       "pending",
                       {wire::encode_update_head, wire::decode_update_head, wire::kHeaderBytesMax},
                       {}};
  RecordingLink link;
  NullLog log;
  std::vector<std::string> seen;
  std::atomic<int> trainings = 0;
  StateSnapshot state;  // that each update brings
  std::size_t pending_found = 0;
  std::size_t states_found = 0;
  std::unique_ptr<ClientShell> shell;
};

TEST_F(ClientShellTest, OffersAnUpdateOnceItIsOnTheDisk) {
  begin_task();
  EXPECT_THAT(link.calls, ElementsAre("dial"));
  run_until(TimePoint(2s));
  EXPECT_THAT(link.calls, ElementsAre("dial", "offer"));
  EXPECT_GT(disk.bytes(), base.size());
  restart();
  EXPECT_EQ(pending_found, 1U);
  shell->handle(Tick{});
  shell->handle(Connected{});
  hear(protocol::Welcome{.federation = "f", .client = "c", .heartbeat = 10s});
  EXPECT_THAT(link.calls, ElementsAre("dial", "offer", "dial", "offer"));
  hear(protocol::RoundCommitted{.task = kShellTask});
  run_until(TimePoint(3s));
  EXPECT_EQ(disk.bytes(), 0U);
  EXPECT_EQ(trainings, 1);
}

TEST_F(ClientShellTest, ATrainingDoesNotEndInTheNextProcess) {
  begin_task();
  restart();
  run_until(TimePoint(2s));
  EXPECT_EQ(shell->machine().pending_updates(), 0U);
  EXPECT_EQ(disk.bytes(), 0U);
  EXPECT_THAT(link.calls, ElementsAre("dial"));
}

// A restored coordinator gives the number of a task again, from another model.
TEST_F(ClientShellTest, ACancelledTrainingDoesNotFailTheTaskThatHasItsNumber) {
  begin_task();
  const SharedBytes other = SharedBytes::own(Bytes(40, std::byte{8}));
  send_task(kShellTask, 1, other);
  ASSERT_EQ(shell->machine().activity(), ClientMachine::Activity::kTraining);
  run_until(TimePoint(9s));
  EXPECT_EQ(trainings, 2);
  EXPECT_THAT(seen, ::testing::Not(Contains(HasSubstr("training failed"))));
  EXPECT_THAT(link.calls, ElementsAre("dial", "offer"));
}

TEST_F(ClientShellTest, AFailedSyncIsToldOnceTheMachineKnows) {
  begin_task();
  next_change(Fault::kFailedSync);
  run_until(TimePoint(2s));
  EXPECT_THAT(seen, Contains("broken: fsync-failed"));
  EXPECT_THAT(link.calls, ElementsAre("dial"));
}

TEST_F(ClientShellTest, AFullDiskIsNoReasonToEnd) {
  begin_task();
  next_change(Fault::kFull);
  run_until(TimePoint(2s));
  EXPECT_THAT(seen, ::testing::Not(Contains(HasSubstr("broken"))));
}

TEST_F(ClientShellTest, ASettledUpdateThatCannotBeRemovedIsSaid) {
  begin_task();
  run_until(TimePoint(2s));
  next_change(Fault::kFailedSync);
  hear(protocol::RoundCommitted{.task = kShellTask});
  run_until(TimePoint(3s));
  EXPECT_THAT(seen, Contains(HasSubstr("a settled update remains")));
  EXPECT_THAT(seen, Contains("broken: fsync-failed"));
}

// Settled again after a restart, it keeps its state then.
TEST_F(ClientShellTest, AnUpdateStaysWhereItsStateCouldNotBeKept) {
  state = std::make_shared<const strategy::State<float>>(
      strategy::State<float>{.vectors = {{"control", {1, 2}}}, .scalars = {}});
  begin_task();
  run_until(TimePoint(2s));
  next_change(Fault::kFull);
  hear(protocol::RoundCommitted{.task = kShellTask, .run = RunId(1), .round = 1});
  run_until(TimePoint(3s));
  EXPECT_THAT(seen, Contains(HasSubstr("the strategy's state is kept in memory only")));
  restart();
  EXPECT_EQ(pending_found, 1U);
  EXPECT_EQ(states_found, 0U);
  shell->handle(Tick{});
  shell->handle(Connected{});
  hear(protocol::Welcome{.federation = "f", .client = "c", .heartbeat = 10s});
  hear(protocol::RoundCommitted{.task = kShellTask, .run = RunId(1), .round = 1});
  run_until(TimePoint(4s));
  restart();
  EXPECT_EQ(pending_found, 0U);
  EXPECT_EQ(states_found, 1U);
}

TEST_F(ClientShellTest, AnUpdateWhoseStateCouldNotBeKeptGoesWithALaterOne) {
  state = std::make_shared<const strategy::State<float>>(
      strategy::State<float>{.vectors = {{"control", {1, 2}}}, .scalars = {}});
  begin_task();
  run_until(TimePoint(2s));
  next_change(Fault::kFull);
  hear(protocol::RoundCommitted{.task = kShellTask, .run = RunId(1), .round = 1});
  run_until(TimePoint(3s));
  constexpr TaskId kNext(6);
  send_task(kNext, 2, base);
  run_until(TimePoint(5s));
  hear(protocol::RoundCommitted{.task = kNext, .run = RunId(1), .round = 2});
  run_until(TimePoint(6s));
  restart();
  EXPECT_EQ(pending_found, 0U);
  EXPECT_EQ(states_found, 1U);
}

TEST_F(ClientShellTest, WakesItsMachineAtItsDeadlines) {
  shell->handle(Tick{});
  shell->handle(Connected{});  // and no welcome comes
  run_until(TimePoint(20s));
  EXPECT_THAT(link.calls, ElementsAre("dial", "hang up", "dial"));
  EXPECT_THAT(seen.front(), HasSubstr("hung up: "));
}

}  // namespace
}  // namespace starling::client

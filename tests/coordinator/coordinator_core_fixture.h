// SPDX-License-Identifier: Apache-2.0
// A coordinator's process on a simulated disk, in virtual time, with one client that a test plays.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/coordinator_core.h"
#include "core/sim/simulated_disk.h"
#include "core/sim/virtual_computation.h"
#include "tests/coordinator/flaky_store.h"

namespace starling::coordinator {

class RecordingSessions final : public protocol::SessionLinks {
 public:
  void send(SessionId, const protocol::Envelope& envelope) override {
    sent.push_back(envelope.message);
  }
  void close(SessionId, const std::string& code, const std::string&) override {
    closed.push_back(code);
  }
  bool is_open(SessionId) const override { return true; }
  template <class T>
  std::size_t count() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        sent, [](const auto& message) { return std::holds_alternative<T>(message); }));
  }

  std::vector<protocol::Message> sent;
  std::vector<std::string> closed;
};

// Work that takes no time, or, while `holds`, as long as the test wants.
class GatedComputation final : public Computation {
 public:
  explicit GatedComputation(Scheduler& scheduler) : immediate_(scheduler) {}
  void submit(Work work, std::function<void()> done) override {
    if (!holds) return immediate_.submit(std::move(work), std::move(done));
    held_.emplace_back(std::move(work), std::move(done));
  }
  // The first piece that is held.
  void release() {
    ASSERT_FALSE(held_.empty());
    auto [work, done] = std::move(held_.front());
    held_.pop_front();
    immediate_.submit(std::move(work), std::move(done));
  }
  std::size_t held() const { return held_.size(); }

  bool holds = false;

 private:
  sim::ImmediateComputation immediate_;
  std::deque<std::pair<Work, std::function<void()>>> held_;
};

class CountingLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    if (line.find("for the disk: no space left on device") != line.npos) ++waits;
  }
  int waits = 0;  // for the disk
};

// A run of one client.
class CoordinatorCoreTest : public ::testing::Test {
 protected:
  CoordinatorCoreTest() {
    job.training.model.kind = "softmax-regression";
    job.training.data = {.input = {2}, .classes = 2};
    job.round.cohort = 1;
    job.round.min_updates = 1;
    job.round.wait_for = 1;
    store::Certificate certificate{.serial = "cam-7", .client = "cam-7", .not_after = {}};
    EXPECT_TRUE(store->add_client("cam-7", store::Role::kDevice, certificate, {}));
    EXPECT_TRUE(store->record_seen("cam-7", {}, store::Greeting{.rows = 10}));
    id = store->submit_run({.name = "r", .seed = 1, .job = job_to_toml(job)}, {}).value();
  }
  // The first round is open, as an earlier process left it.
  void leave_open() {
    const LoadedRun run = load_new_run(*store->find_run(id).value()).value();
    const auto initial = write_position(checkpoints, run.at, run.context->job_settings()).value();
    EXPECT_TRUE(store->start_run(id, initial, run.context->job_settings(), {}));
    EXPECT_TRUE(store->open_attempt({.key = {id, 1, 1},
                                     .cohort = {{"cam-7", TaskId(1)}},
                                     .base_model = run.at.version.sha256,
                                     .started = {},
                                     .population = 1}));
  }
  void hear(protocol::Message message) {
    core->handle(MessageReceived{SessionId(1), {std::move(message), {}}});
  }
  // Loading each run takes so long. `external` is the coordinator's trainer.
  void start(Duration loading, ModelEvaluator* external = nullptr) {
    core = std::make_unique<CoordinatorCore>(
        CoordinatorCore::World{
            scheduler, clock, *store, sessions, disk,
            [this](RunId run) {
              return run == id ? checkpoints
                               : store::Checkpoints(disk, fmt::format("models-{}", run.value()));
            },
            [this, loading](const Job& loaded, const ExternalOrigin& origin) {
              wait(loading);
              return prepare_context(loaded, origin);
            },
            strategy::builtin_strategies(), phases, computation, evaluators, log, external},
        CoordinatorCore::Options{},
        CoordinatorCore::Handlers{.on_broken = [](const Error& e) { FAIL() << e.message(); }});
    ASSERT_TRUE(core->start());
  }
  void wait(Duration time) {
    bool over = false;
    scheduler.schedule(scheduler.now() + time, [&over] { over = true; });
    while (!over) ASSERT_TRUE(scheduler.run_one());
  }
  // The client's update for the last plan that it was sent.
  void send_update() {
    const auto plan = std::get<protocol::RoundPlan>(sessions.sent.back());
    const Bytes zeros(static_cast<std::size_t>(update::payload_bytes(plan.schema.vectors)));
    hear(protocol::UpdateOffer{{.task = plan.task,
                                .base = plan.base,
                                .weight = 3,
                                .vectors = plan.schema.vectors,
                                .scalars = {{"train_loss", 0.5}},
                                .payload_bytes = zeros.size(),
                                .payload_checksum = checksum(zeros)}});
    core->handle(MessageReceived{
        SessionId(1), {protocol::Chunk{.task = plan.task}, SharedBytes(nullptr, zeros)}});
  }
  std::size_t count_calls(const std::string& call) {
    return static_cast<std::size_t>(std::ranges::count(store->calls, call));
  }
  std::string waits_for() { return core->waits_for(*store->find_run(id).value()); }
  bool is_open() { return store->find_open_attempt(id).value().has_value(); }

  Job job;
  SystemClock clock;
  CountingLog log;
  std::unique_ptr<testing::FlakyStore> store = std::make_unique<testing::FlakyStore>();
  sim::SimulatedDisk disk{0};
  store::Checkpoints checkpoints{disk, "models"};
  sim::VirtualScheduler scheduler;
  sim::ImmediateComputation computation{scheduler};
  GatedComputation phases{scheduler};
  ComputePool evaluators{1};
  RecordingSessions sessions;
  RunId id;
  std::unique_ptr<CoordinatorCore> core;
};

}  // namespace starling::coordinator

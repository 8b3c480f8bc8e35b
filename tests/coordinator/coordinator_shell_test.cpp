// SPDX-License-Identifier: Apache-2.0
// The shell on a disk that is full or fails: a round from its opening to its commit, driven by the
// events of a client that has no socket.
#include "coordinator/rounds/coordinator_shell.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_records.h"
#include "coordinator/service/state_directory.h"
#include "core/base/disk.h"
#include "core/issuer/client_sessions.h"
#include "core/net/alarm.h"
#include "core/net/task_group.h"
#include "tests/coordinator/dense_vectors.h"
#include "tests/coordinator/flaky_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using store::RunState;
using ::testing::ElementsAre;
using ::testing::StartsWith;

const SessionId kSession(1);

Error disk_full() { return overloaded("disk-full", "no space left on device"); }

// One round of one client.
Job one_round() {
  Job job;
  job.job.rounds = 1;
  job.training.model.kind = "softmax-regression";
  job.training.data = {.input = {2}, .classes = 2};
  job.round.cohort = 1;
  job.round.min_updates = 1;
  job.round.wait_for = 1;
  return job;
}

class CoordinatorShellTest : public ::testing::Test {
 protected:
  CoordinatorShellTest() {
    submit(one_round());
    shell.handle(ClientAdmitted{"cam-7"});
    shell.handle(SessionOpened{kSession, "cam-7"});
    shell.handle(MessageReceived{kSession, {protocol::Hello{}, {}}});
  }
  ~CoordinatorShellTest() override { loop.run_task(sessions.stop()); }

  void submit(const Job& job) {
    const RunId id =
        store.submit_run({.name = "r", .seed = 1, .job = job_to_toml(job)}, {}).value();
    run = load_new_run(*store.find_run(id).value()).value();
    ASSERT_TRUE(store.start_run(id, {.sha256 = run.at.version.sha256}, "", {}));
  }
  void start() {
    shell.start_run(run, to_run_start(run.at.version.run, *run.context, run.at, {}, {}));
  }
  // Turns of the loop until `done`; each test's own patience is the runner's.
  void run_until(const std::function<bool()>& done) { loop.run_task(watch(done)); }
  net::Async<void> watch(std::function<bool()> done) {
    while (!done()) {
      const TimePoint next = loop.now() + 1ms;
      co_await net::sleep_until(loop, next);
    }
  }
  TaskId open_task() {
    return store.find_open_attempt(run.at.version.run).value().value().cohort.front().task;
  }
  Bytes zeros() const {
    return Bytes(
        static_cast<std::size_t>(update::payload_bytes_max(run.context->schema().vectors)));
  }
  // Of an update of the client for the attempt that is open.
  void offer(std::uint64_t checksum) {
    const update::ContributionHead head{.task = open_task(),
                                        .base = run.at.version,
                                        .weight = 3,
                                        .vectors = testing::dense_vectors(run.context->schema()),
                                        .scalars = {{"train_loss", 0.5}},
                                        .payload_bytes = zeros().size(),
                                        .payload_checksum = checksum};
    shell.handle(MessageReceived{kSession, {protocol::UpdateOffer{head}, {}}});
  }
  void send_zeros() {
    const Bytes bytes = zeros();
    shell.handle(MessageReceived{
        kSession, {protocol::Chunk{.task = open_task()}, SharedBytes(nullptr, bytes)}});
  }
  // The whole update, all zero.
  void report() {
    offer(checksum(zeros()));
    send_zeros();
  }
  std::vector<std::string> calls() const { return store.calls; }
  RunState state() { return store.find_run(run.at.version.run).value()->state; }

  testing::TemporaryDirectory directory;
  const StateDirectory state_directory{directory.path()};
  net::EventLoop loop;
  SystemClock clock;
  NullLog log;
  testing::FlakyStore store;
  LoadedRun run;
  std::optional<Error> broken;
  RunLog run_log{store, clock, log, [](const std::string&) {}};
  SystemDisk disk;
  UploadDesk uploads{disk, {.directory = state_directory.spool()}};
  ComputePool evaluators{1};
  PooledComputation computation{loop, 1};
  RoundExecutor executor{computation, evaluators};
  issuer::ClientSessions sessions{loop, clock, log, nullptr, {}, {}};
  RoundCommitter committer{
      {loop, clock, store,
       [this](RunId id) { return store::Checkpoints(disk, state_directory.models(id)); }, executor,
       run_log, log},
      2ms,
      {.on_durable = [this](RoundDurable event) { shell.handle(std::move(event)); },
       .on_committed = [](const RoundSummary&, const RoundOutcome&, const auto&) {},
       .on_broken = [this](const Error& error) { broken = error; }}};
  CoordinatorShell shell{{loop, clock, store, sessions, uploads, executor, committer, run_log, log},
                         {.disk_retry = 2ms, .held_actions_max = 50},
                         {.on_round_began = [](RunId, const Job&) {},
                          .on_round_abandoned = [](const RoundSummary&) {},
                          .on_run_waits = [] {},
                          .on_run_ended = [](RunId) {},
                          .on_welcomed = [](SessionId, const std::string&) {},
                          .on_broken = [this](const Error& error) { broken = error; }}};
};

TEST_F(CoordinatorShellTest, ARoundIsOpenedToldCommittedAndFinishedInThisOrder) {
  start();
  EXPECT_THAT(calls(), ElementsAre("open", StartsWith("say [round 1/1] selected 1 of 1")));
  report();
  run_until([&] { return state() == RunState::kCompleted; });
  EXPECT_THAT(calls(), ElementsAre("open", StartsWith("say [round 1/1] selected"), "commit",
                                   StartsWith("say [round 1/1] 1 update"),
                                   StartsWith("say [round 1/1] train loss 0.5000"), "finish",
                                   "say run completed"));
  const auto model = store.models(run.at.version.run).value().back();
  EXPECT_EQ(model.round, 1U);
  EXPECT_EQ(hash_model_file(disk, state_directory.models(run.at.version.run) /
                                      store::Checkpoints::file_name(model.round))
                .value(),
            model.sha256);
  EXPECT_FALSE(broken);
}

TEST_F(CoordinatorShellTest, NothingBehindAnActionThatMeetsAFullDiskHappensBeforeIt) {
  store.failures = {disk_full(), disk_full(), disk_full()};
  start();
  EXPECT_THAT(calls(), ElementsAre());  // not even told
  run_until([&] { return calls().size() == 2; });
  EXPECT_THAT(calls(), ElementsAre("open", StartsWith("say [round 1/1] selected")));
  EXPECT_TRUE(store.failures.empty());
  report();
  run_until([&] { return state() == RunState::kCompleted; });
}

TEST_F(CoordinatorShellTest, ACommitIsTriedAgainUntilTheDiskTakesIt) {
  start();
  report();
  store.failures = {disk_full(), disk_full()};
  const RunId id = run.at.version.run;
  EXPECT_EQ(committer.waits_for_disk(id), "");
  run_until([&] { return store.failures.empty(); });
  EXPECT_EQ(committer.waits_for_disk(id), "no space left on device");
  run_until([&] { return state() == RunState::kCompleted; });
  EXPECT_EQ(committer.waits_for_disk(id), "");
  EXPECT_EQ(std::ranges::count(calls(), "commit"), 1);
  EXPECT_EQ(std::ranges::count_if(
                calls(), [](const auto& c) { return c.find("waiting for the disk") != c.npos; }),
            2);
  EXPECT_EQ(store.rounds(run.at.version.run, 1).value().size(), 1U);
}

TEST_F(CoordinatorShellTest, ADiskThatStaysFullIsLoggedLessAndLessOften) {
  start();
  report();
  store.failures.assign(17, disk_full());
  run_until([&] { return state() == RunState::kCompleted; });
  EXPECT_EQ(std::ranges::count_if(
                calls(), [](const auto& c) { return c.find("waiting for the disk") != c.npos; }),
            6)
      << "the 1st to 4th, the 8th and the 16th";
}

TEST_F(CoordinatorShellTest, TheEndOfARunWaitsForTheDiskToo) {
  start();
  shell.handle(StopRun{run.at.version.run});
  EXPECT_EQ(state(), RunState::kStopped);
  EXPECT_EQ(store.find_open_attempt(run.at.version.run).value(), std::nullopt);
}

TEST_F(CoordinatorShellTest, ADiskThatFailsEndsEverythingAtOnce) {
  start();
  store.failures = {internal("fsync-failed", "input/output error")};
  report();
  run_until([&] { return broken.has_value(); });
  EXPECT_EQ(broken->code(), "fsync-failed");
  EXPECT_EQ(std::ranges::count(calls(), "commit"), 0);
  EXPECT_EQ(state(), RunState::kRunning);
  EXPECT_TRUE(store.find_open_attempt(run.at.version.run).value()) << "the next start resumes it";
}

TEST_F(CoordinatorShellTest, WhatWaitsForAFullDiskIsLimited) {
  store.failures.assign(10'000, disk_full());
  start();
  for (std::uint64_t i = 2; i <= 60; ++i) {
    shell.handle(ClientAdmitted{fmt::format("cam-{}", 100 + i)});
    shell.handle(SessionOpened{SessionId(i), fmt::format("cam-{}", 100 + i)});
    shell.handle(MessageReceived{SessionId(i), {protocol::Hello{}, {}}});
  }
  run_until([&] { return broken.has_value(); });
  EXPECT_EQ(broken->code(), "disk-full");
  EXPECT_THAT(calls(), ElementsAre());
}

TEST_F(CoordinatorShellTest, AClientThatAsksWithoutEndDoesNotEndAServiceThatWaitsForItsDisk) {
  store.failures = {disk_full(), disk_full()};
  start();
  for (std::uint64_t i = 100; i <= 160; ++i) {
    const protocol::UpdateOffer offer{{.task = TaskId(i)}};
    shell.handle(MessageReceived{kSession, {offer, {}}});  // is looked up in the store
  }
  run_until([&] { return broken || store.find_open_attempt(run.at.version.run).value(); });
  EXPECT_FALSE(broken) << broken->message();
}

// A round of two clients is open, and what is done for another run waits for the disk.
class FullDiskTest : public CoordinatorShellTest {
 protected:
  FullDiskTest() {
    Job job = one_round();
    job.round.cohort = 2;
    submit(job);
    join(2, "cam-8");
    start();
    cohort = store.find_open_attempt(run.at.version.run).value().value().cohort;
    const LoadedRun first = run;
    submit(one_round());
    store.failures = {disk_full(), disk_full()};
    join(3, "cam-9");
    start();
    EXPECT_EQ(shell.waits_for_disk(run.at.version.run), "no space left on device");
    run = first;
  }
  void join(std::uint64_t session, const std::string& client) {
    shell.handle(ClientAdmitted{client});
    shell.handle(SessionOpened{SessionId(session), client});
    shell.handle(MessageReceived{SessionId(session), {protocol::Hello{}, {}}});
  }
  void fail_task(std::uint64_t session, TaskId task) {
    shell.handle(MessageReceived{SessionId(session),
                                 {protocol::TaskFailed{.task = task, .code = "diverged"}, {}}});
  }
  bool goes_on() {
    run_until([&] { return broken || shell.waits_for_disk(run.at.version.run).empty(); });
    return !broken;
  }

  std::vector<store::CohortMember> cohort;
};

TEST_F(FullDiskTest, AnUpdateThatIsOfferedWithoutEndDoesNotEndTheService) {
  for (std::uint64_t i = 0; i < 200; ++i) offer(i);
  offer(checksum(zeros()));
  ASSERT_TRUE(goes_on()) << broken->message();
  send_zeros();
  fail_task(2, cohort.at(1).task);
  run_until(
      [&] { return state() != RunState::kRunning || std::ranges::count(calls(), "abandon") > 0; });
  EXPECT_EQ(state(), RunState::kCompleted) << "the last offer counts";
}

TEST_F(FullDiskTest, AnUpdateThatWasRefusedAndIsOfferedWithoutEndDoesNotEndTheService) {
  fail_task(1, cohort.at(0).task);
  for (std::uint64_t i = 0; i < 200; ++i) offer(0);  // is told that its task has ended
  EXPECT_TRUE(goes_on()) << broken->message();
}

}  // namespace
}  // namespace starling::coordinator

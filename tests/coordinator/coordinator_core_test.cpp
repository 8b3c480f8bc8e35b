// SPDX-License-Identifier: Apache-2.0
// The process around the machine: what a start after a restart does with the time that it takes.
#include <gmock/gmock.h>

#include "tests/coordinator/coordinator_core_fixture.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;

TEST_F(CoordinatorCoreTest, TheTimeThatAStartTakesCountsNeitherAgainstClientsNorTheDeadline) {
  leave_open();
  start(job.round.deadline + 1h);
  wait(59s);
  EXPECT_TRUE(is_open()) << "no client could connect before";
  wait(2s);
  EXPECT_FALSE(is_open());
  const auto rounds = store->rounds(id, 1).value();
  ASSERT_EQ(rounds.size(), 1U);
  ASSERT_EQ(rounds[0].result.failures.size(), 1U);
  EXPECT_EQ(rounds[0].result.failures[0].reason, "the client was disconnected for 1m");
}

// Tried every 5 s.
TEST_F(CoordinatorCoreTest, WhileTheDiskIsFullNoDeadlinePassesAndSessionsStayAlive) {
  const Duration full = 10 * job.round.deadline;
  store->failures.assign(static_cast<std::size_t>(full / 5s),
                         overloaded("disk-full", "no space left on device"));
  start(0s);
  core->handle(SessionOpened{SessionId(1), "cam-7"});
  hear(protocol::Hello{.rows = 10});
  core->runs().load_next();
  wait(full - 1s);
  EXPECT_FALSE(is_open());
  EXPECT_EQ(waits_for(), "the disk: no space left on device");
  EXPECT_EQ(log.waits, 8) << "of 120 attempts";
  EXPECT_EQ(sessions.count<protocol::RoundPlan>(), 0U) << "nothing is told that is not durable";
  hear(protocol::Ping{});
  EXPECT_EQ(sessions.count<protocol::Pong>(), 1U);
  core->handle(SessionOpened{SessionId(2), "cam-7"});
  core->handle(MessageReceived{SessionId(2), {protocol::Hello{.rows = 10}, {}}});
  EXPECT_EQ(sessions.count<protocol::Welcome>(), 2U);
  EXPECT_THAT(sessions.closed, ::testing::ElementsAre("replaced"));
  EXPECT_EQ(core->heard_at("cam-7"), scheduler.now());
  wait(10s);
  ASSERT_TRUE(store->failures.empty());
  ASSERT_EQ(sessions.count<protocol::RoundPlan>(), 2U) << "of each session";
  EXPECT_EQ(std::get<protocol::RoundPlan>(sessions.sent.back()).deadline, job.round.deadline);
  EXPECT_TRUE(is_open());
  EXPECT_EQ(waits_for(), "");
  EXPECT_EQ(count_calls("abandon"), 0U);
  EXPECT_EQ(count_calls("open"), 1U);
  // The client says nothing more: it is given up as usual.
  wait(5min);
  EXPECT_EQ(count_calls("abandon"), 1U);
}

TEST_F(CoordinatorCoreTest, ARunSaysThatItWaitsForTheDiskWithItsFilesAndItsCommits) {
  bool full = true;
  disk.set_fault_injector([&](const std::filesystem::path&) {
    return full ? sim::SimulatedDisk::Fault::kFull : sim::SimulatedDisk::Fault::kNone;
  });
  start(0s);
  core->handle(SessionOpened{SessionId(1), "cam-7"});
  hear(protocol::Hello{.rows = 10});
  core->runs().load_next();
  wait(1s);
  EXPECT_THAT(waits_for(), ::testing::StartsWith("the disk: "));
  full = false;
  wait(5s);
  ASSERT_TRUE(is_open());
  EXPECT_EQ(waits_for(), "");
  full = true;
  send_update();
  wait(1s);
  ASSERT_EQ(sessions.count<protocol::UpdateReceived>(), 1U);
  EXPECT_THAT(waits_for(), ::testing::StartsWith("the disk: "));
  full = false;
  wait(5s);
  EXPECT_EQ(store->last_round(id).value(), 1U);
  EXPECT_EQ(waits_for(), "");
}

// --- models that are being copied ---------------------------------------------------------------

// The run has committed its first round, and its models are on another disk, which is not there.
class ModelsAwayTest : public CoordinatorCoreTest {
 protected:
  ModelsAwayTest() {
    leave_open();
    LoadedRun run = load_new_run(*store->find_run(id).value()).value();
    run.at.version.round = 1;
    const auto first = write_position(checkpoints, run.at, run.context->job_settings()).value();
    EXPECT_TRUE(
        store->commit_attempt({id, 1, 1}, {.contributions = {{"cam-7", TaskId(1), 1}}}, first));
    EXPECT_TRUE(disk.make_directory("away", Disk::Access::kShared));
    for (const char* file : {"0.safetensors", "1.safetensors"}) move(file, "models", "away");
    start(0s);
  }
  void move(const std::string& file, const std::string& from, const std::string& to) {
    ASSERT_TRUE(disk.rename(from + "/" + file, to + "/" + file));
  }
  bool has_resumed() { return count_calls("say resumed after round 1") == 1; }
};

TEST_F(ModelsAwayTest, NothingIsConcludedFromThoseThatAreStillMissing) {
  EXPECT_THAT(waits_for(), ::testing::StartsWith("its files to be readable: no model of run"));
  move("0.safetensors", "away", "models");
  wait(6s);
  EXPECT_EQ(waits_for(),
            "its files to be readable: models/1.safetensors is missing; a new start goes on from "
            "an earlier one");
  EXPECT_EQ(store->last_round(id).value(), 1U) << "the round is not withdrawn";
  ASSERT_TRUE(disk.write("models/2.safetensors", {}));
  move("1.safetensors", "away", "models");
  wait(5s);
  EXPECT_TRUE(has_resumed());
  EXPECT_EQ(waits_for(), "");
  EXPECT_FALSE(disk.open("models/2.safetensors"))
      << "it is set aside: the next round needs its name";
  EXPECT_EQ(std::ranges::count_if(store->calls,
                                  [](const std::string& call) {
                                    return call.find("they are set aside") != call.npos;
                                  }),
            1);
}

// The retry that finds the models hashes them beside the turns of the process.
TEST_F(ModelsAwayTest, ARunThatIsStoppedWhileItsModelsAreReadDoesNotGoOn) {
  for (const char* file : {"0.safetensors", "1.safetensors"}) move(file, "away", "models");
  // Of two turns that are due at one time the one that was asked for first comes first.
  scheduler.schedule(scheduler.now() + 5s, [this] { EXPECT_TRUE(store->request_stop(id, {})); });
  wait(6s);
  EXPECT_EQ(store->find_run(id).value()->state, store::RunState::kStopped);
  EXPECT_FALSE(has_resumed());
}

}  // namespace
}  // namespace starling::coordinator

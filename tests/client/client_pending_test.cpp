// SPDX-License-Identifier: Apache-2.0
// Pending updates where places are few: one that brings a state is kept until it is settled, and
// what it answers changes without a moment in which the disk does not hold it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/client_machine_fixture.h"

namespace starling::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClientPendingTest : public ClientMachineTest {
 protected:
  static StateSnapshot state(float value) {
    strategy::State<float> made;
    made.vectors["control"] = {value};
    return std::make_shared<const strategy::State<float>>(std::move(made));
  }
  void start(std::size_t places, Leftovers left = {}) {
    ClientOptions few = options();
    few.pending_updates_max = places;
    machine = ClientMachine(few, Rng({.seed = 1}), std::move(left));
    connect();
  }
  protocol::RoundPlan plan_of(std::uint64_t run, std::uint64_t task, Round round = 1,
                              protocol::CountedTask last_counted = {}) const {
    protocol::RoundPlan made = plan(task, round);
    made.run = made.base.run = RunId(run);
    made.base.run_key = 77;
    made.last_counted = last_counted;
    return made;
  }
  static PendingUpdate made_for(const protocol::RoundPlan& task, const SharedBytes& payload,
                                StateSnapshot state) {
    return {{.task = task.task,
             .base = task.base,
             .weight = 100,
             .vectors = task.schema.vectors,
             .payload_bytes = payload.size()},
            payload,
            std::move(state),
            made_from(task)};
  }
  // Until the update is to be stored.
  void train_for(const protocol::RoundPlan& task, StateSnapshot state) {
    hear(task);
    if (!did<Train>()) serve_model(task.task);
    ASSERT_TRUE(did<Train>());
    EXPECT_FALSE(did<Train>()->state_lost);
    feed(TrainingFinished{task.task, made_for(task, base, std::move(state))});
    ASSERT_TRUE(did<StoreUpdate>());
  }
  void stored(std::uint64_t task) { feed(UpdateStored{TaskId(task), Result<void>()}); }
  void disk_was_full(std::uint64_t task) {
    feed(UpdateStored{TaskId(task), overloaded("disk-full", "no space")});
  }
  void receive(std::uint64_t run, std::uint64_t task, StateSnapshot made) {
    train_for(plan_of(run, task), std::move(made));
    stored(task);
    hear(protocol::UpdateReceived{TaskId(task)});
  }
  std::vector<std::uint64_t> forgotten() const {
    std::vector<std::uint64_t> tasks;
    for (const Action& action : actions) {
      if (const auto* forget = std::get_if<ForgetUpdate>(&action)) {
        tasks.push_back(forget->task.value());
      }
    }
    return tasks;
  }
  std::vector<std::string> warnings() const {
    std::vector<std::string> lines;
    for (const Action& action : actions) {
      const auto* say = std::get_if<Say>(&action);
      if (say != nullptr && say->level == LogLevel::kWarning) lines.push_back(say->line);
    }
    return lines;
  }
};

// Its commit takes long, and meanwhile other runs ask.
TEST_F(ClientPendingTest, AnUpdateWithAStateIsNotDroppedForOtherRuns) {
  start(2);
  receive(1, 1, state(1));
  receive(2, 2, state(2));
  hear(plan_of(3, 3));
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kIdle);
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskFailed>()[0].code, kMemoryInUse);
  EXPECT_FALSE(sent<protocol::TaskFailed>()[0].permanent);
  EXPECT_THAT(sent<protocol::TaskFailed>()[0].message,
              HasSubstr("taken until rounds of run 1, 2 are committed: raise "
                        "limits.pending-updates"));
  hear(protocol::TaskEnded{TaskId(3), std::string(kMemoryInUse), "as told"});

  hear(protocol::RoundCommitted{TaskId(1), RunId(1), 1, {}});
  ASSERT_TRUE(did<KeepState>());
  receive(3, 4, state(3));
  hear(plan_of(1, 5, 2, {TaskId(1), 1}));
  EXPECT_EQ(sent<protocol::TaskFailed>().size(), 1U) << "now runs 2 and 3 have the places";
  hear(protocol::RoundCommitted{TaskId(2), RunId(2), 1, {}});
  train_for(plan_of(1, 6, 2, {TaskId(1), 1}), state(1));
}

TEST_F(ClientPendingTest, ARunTakesTheSamePlaceInItsNextRound) {
  start(1);
  receive(1, 1, state(1));
  hear(plan_of(1, 2, 2, {TaskId(1), 1}));
  EXPECT_TRUE(sent<protocol::TaskFailed>().empty());
  EXPECT_TRUE(did<KeepState>());
}

TEST_F(ClientPendingTest, TheOldestUpdateWithoutAStateMakesRoom) {
  start(3);
  receive(1, 1, state(1));
  receive(2, 2, nullptr);
  receive(3, 3, nullptr);
  train_for(plan_of(4, 4), state(4));
  EXPECT_THAT(forgotten(), ElementsAre(2));
  EXPECT_EQ(machine.pending_updates(), 3U);
}

TEST_F(ClientPendingTest, FewerPlacesThanAnEarlierProcessHadLoseNothing) {
  Leftovers left;
  for (std::uint64_t n = 1; n <= 3; ++n) {
    left.pending.push_back(made_for(plan_of(n, n), base, state(1)));
  }
  start(1, std::move(left));
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 3U);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    hear(protocol::RoundCommitted{TaskId(n), RunId(n), 1, {}});
    EXPECT_TRUE(did<KeepState>()) << n;
  }
}

TEST_F(ClientPendingTest, ALaterAttemptsCopyTakesTheEarlierOnesPlace) {
  start(2);
  receive(1, 1, nullptr);
  receive(2, 2, nullptr);
  hear(plan_of(2, 3));
  ASSERT_TRUE(did<StoreUpdate>());
  EXPECT_EQ(machine.pending_updates(), 2U);
  EXPECT_THAT(forgotten(), ElementsAre());
  stored(3);
  EXPECT_THAT(forgotten(), ElementsAre(2));
}

TEST_F(ClientPendingTest, TheEarlierAttemptsFileStaysUntilTheLaterOnesIsThere) {
  start(1);
  receive(1, 1, state(1));
  hear(plan_of(1, 2));
  ASSERT_TRUE(did<StoreUpdate>());
  EXPECT_THAT(forgotten(), ElementsAre());
  disk_was_full(2);
  EXPECT_THAT(forgotten(), ElementsAre());
  hear(plan_of(1, 3));
  ASSERT_TRUE(did<StoreUpdate>());
  EXPECT_EQ(did<StoreUpdate>()->update.head.task, TaskId(3));
  EXPECT_THAT(forgotten(), ElementsAre());
  stored(3);
  EXPECT_THAT(forgotten(), ElementsAre(2, 1));
  hear(protocol::RoundCommitted{TaskId(3), RunId(1), 1, {}});
  EXPECT_TRUE(did<KeepState>());
  EXPECT_THAT(forgotten(), ElementsAre(3));
}

TEST_F(ClientPendingTest, AFileThatWasNeverReplacedGoesWithItsUpdate) {
  start(1);
  receive(1, 1, nullptr);
  hear(plan_of(1, 2));
  disk_was_full(2);
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U) << "it is kept in memory";
  hear(protocol::TaskEnded{TaskId(2), "round-closed", "x"});
  EXPECT_THAT(forgotten(), ElementsAre(1, 2));
}

// A crash came between the two files.
TEST_F(ClientPendingTest, ALaterAttemptTakesTheCopiesOfAllEarlierOnes) {
  start(1, {.pending = {made_for(plan_of(1, 1), base, state(1)),
                        made_for(plan_of(1, 2), base, state(1))}});
  hear(plan_of(1, 3));
  EXPECT_EQ(machine.pending_updates(), 1U);
  stored(3);
  EXPECT_THAT(forgotten(), ElementsAre(1, 2));
}

TEST_F(ClientPendingTest, AnAttemptThatComesOnceMoreKeepsItsOwnFile) {
  start(1);
  receive(1, 1, state(1));
  hear(plan_of(1, 2));
  hear(plan_of(1, 1));
  ASSERT_TRUE(did<StoreUpdate>());
  stored(1);
  EXPECT_THAT(forgotten(), ElementsAre(2));
}

TEST_F(ClientPendingTest, AnUpdateThatTheDiskNeverTookDoesNotHoldUpTheNextRound) {
  start(1);
  receive(1, 1, state(1));
  hear(protocol::RoundCommitted{TaskId(1), RunId(1), 1, {}});
  train_for(plan_of(1, 2, 2, {TaskId(1), 1}), state(2));
  disk_was_full(2);
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  hear(plan_of(1, 3, 3, {TaskId(1), 1}));
  EXPECT_THAT(warnings(),
              ElementsAre(HasSubstr("the round was over before the disk had taken it")));
  EXPECT_THAT(forgotten(), ElementsAre(2));
  ASSERT_TRUE(did<Train>()) << "the model is held";
  ASSERT_NE(did<Train>()->state, nullptr);
  EXPECT_EQ(did<Train>()->state->vectors.at("control").at(0), 1);
}

TEST_F(ClientPendingTest, AFullDiskIsSaidOnce) {
  start(1);
  train_for(plan_of(1, 1), state(1));
  disk_was_full(1);
  EXPECT_EQ(warnings().size(), 1U);
  now += 5s;
  feed(Tick{});
  ASSERT_TRUE(did<StoreUpdate>());
  disk_was_full(1);
  EXPECT_TRUE(warnings().empty());
  now += 5s;
  feed(Tick{});
  ASSERT_TRUE(did<StoreUpdate>());
  stored(1);
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
}

// Its run may have ended meanwhile, and no plan would settle it.
TEST_F(ClientPendingTest, AReconnectAsksAboutAnUpdateThatCannotBeOffered) {
  start(1);
  train_for(plan_of(1, 1), state(1));
  disk_was_full(1);
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0], protocol::ModelRequest{.task = TaskId(1)});
  hear(protocol::TaskEnded{TaskId(1), "round-closed", "x"});
  EXPECT_EQ(machine.pending_updates(), 0U);
}

// A restored coordinator gives the task's number again while the disk still works on the first.
TEST_F(ClientPendingTest, AStoredUpdateEndsNoTaskThatOnlyHasItsNumber) {
  start(2);
  train_for(plan_of(1, 1), nullptr);
  protocol::RoundPlan again = plan_of(1, 1);
  base = SharedBytes::own(Bytes(600, std::byte{8}));
  again.base.sha256 = sha256(base.view());
  hear(again);
  ASSERT_EQ(machine.activity(), ClientMachine::Activity::kFetching);
  feed(UpdateStored{TaskId(1), Result<void>()});
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kFetching);
}

}  // namespace
}  // namespace starling::client

// SPDX-License-Identifier: Apache-2.0
// Tasks with several inputs, and what a client's half of a strategy remembers: it advances when its
// update counted and never otherwise, and no round builds on an outcome that is not known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/client_machine_fixture.h"

namespace starling::client {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ClientStateTest : public ClientMachineTest {
 protected:
  static StateSnapshot state(float value) {
    strategy::State<float> made;
    made.vectors["control"] = {value};
    return std::make_shared<const strategy::State<float>>(std::move(made));
  }
  static float value_of(const StateSnapshot& state) {
    return state ? state->vectors.at("control").at(0) : 0;
  }
  // Trains for the task and stores its update, whose commit makes the state `next`.
  void train_to(std::uint64_t task, Round round, float next) {
    hear(plan(task, round));
    if (!did<Train>()) serve_model(TaskId(task));
    ASSERT_TRUE(did<Train>());
    PendingUpdate made = update(task, round);
    made.state = state(next);
    feed(TrainingFinished{TaskId(task), made});
    feed(UpdateStored{TaskId(task), Result<void>()});
  }
  // The run's first update counts, with a state. Returns the run whose state is dropped for it.
  std::optional<RunId> count_update_of(std::uint64_t run, bool is_last_round = false) {
    protocol::RoundPlan task = plan(run);
    task.run = task.base.run = RunId(run);
    task.rounds = is_last_round ? task.round : task.round + 1;
    hear(task);
    if (!did<Train>()) serve_model(TaskId(run));
    PendingUpdate made = update(run);
    made.head.base = task.base;
    made.state = state(1);
    feed(TrainingFinished{TaskId(run), made});
    feed(UpdateStored{TaskId(run), Result<void>()});
    hear(protocol::RoundCommitted{TaskId(run), RunId(run), 1, {}});
    return did<ForgetState>() ? std::optional(did<ForgetState>()->run) : std::nullopt;
  }
  void commit(std::uint64_t task, Round round) {
    hear(protocol::RoundCommitted{TaskId(task), RunId(1), round, {}});
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const Action& action : actions) {
      if (const auto* say = std::get_if<Say>(&action)) lines.push_back(say->line);
    }
    return lines;
  }
  // Of a coordinator that says what it counted last of this client.
  protocol::RoundPlan plan_after(std::uint64_t task, Round round, std::uint64_t last_counted,
                                 std::uint32_t run_key = 77) const {
    protocol::RoundPlan made = plan(task, round);
    made.base.run_key = run_key;
    made.last_counted = {TaskId(last_counted), static_cast<Round>(last_counted)};
    return made;
  }
  void start_with(Leftovers left) {
    machine = ClientMachine(options(), Rng({.seed = 1}), std::move(left));
    connect();
  }
  // The state that the client trains with.
  StateSnapshot trains_with(const protocol::RoundPlan& task) {
    hear(task);
    said = lines();
    if (!did<Train>()) serve_model(task.task);
    EXPECT_TRUE(did<Train>());
    return did<Train>() ? did<Train>()->state : nullptr;
  }
  std::vector<std::string> said;  // of the last plan
};

TEST_F(ClientStateTest, FetchesTheInputsThatItLacks) {
  connect();
  const SharedBytes control = SharedBytes::own(Bytes(300, std::byte{9}));
  protocol::RoundPlan task = plan(5);
  task.inputs = {{"control", sha256(control.view()), control.size()}};
  hear(task);
  EXPECT_EQ(sent<protocol::ModelRequest>().at(0).input, 0U);
  serve_model(TaskId(5));
  ASSERT_FALSE(did<Train>());
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0].input, 1U);
  hear(protocol::Chunk{TaskId(5), 500}, base.slice(500, 100));
  EXPECT_FALSE(did<HangUp>()) << "a piece of the model that comes late";
  for (std::uint64_t at = 0; at < 300; at += 100) {
    hear(protocol::Chunk{TaskId(5), at, 1}, control.slice(at, 100));
  }
  ASSERT_TRUE(did<Train>());
  ASSERT_EQ(did<Train>()->inputs.size(), 1U);
  EXPECT_EQ(as_text(did<Train>()->inputs[0].view()), as_text(control.view()));

  task = plan(6, 2);  // the same model; another control
  task.inputs = {{"control", sha256(as_bytes("another")), 300}};
  hear(task);
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0].input, 1U) << "the model is held";
}

TEST_F(ClientStateTest, ReconnectsInTheMiddleOfTheSecondInput) {
  connect();
  const SharedBytes control = SharedBytes::own(Bytes(300, std::byte{9}));
  protocol::RoundPlan task = plan(5);
  task.inputs = {{"control", sha256(control.view()), control.size()}};
  hear(task);
  serve_model(TaskId(5));
  hear(protocol::Chunk{TaskId(5), 0, 1}, control.slice(0, 100));
  feed(Disconnected{retry("closed", "x")});
  connect();
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0].offset, 100U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0].input, 1U);
}

TEST_F(ClientStateTest, AdvancesWithTheCommitAndIsKeptBeforeTheUpdateIsForgotten) {
  connect();
  train_to(1, 1, 1.5F);
  EXPECT_FALSE(did<KeepState>());
  commit(1, 1);
  ASSERT_EQ(actions.size(), 3U);  // a line of the log, then
  ASSERT_TRUE(std::holds_alternative<KeepState>(actions[1]));
  EXPECT_EQ(std::get<KeepState>(actions[1]).state.round, 1U);
  EXPECT_EQ(std::get<KeepState>(actions[1]).state.task, TaskId(1));
  ASSERT_TRUE(std::holds_alternative<ForgetUpdate>(actions[2]));
  hear(plan(2, 2));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(value_of(did<Train>()->state), 1.5F);
}

TEST_F(ClientStateTest, StaysWhereTheUpdateDidNotCount) {
  connect();
  train_to(1, 1, 1.5F);
  hear(protocol::TaskEnded{TaskId(1), "round-closed", "x"});
  EXPECT_FALSE(did<KeepState>());
  hear(plan(2, 2));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(did<Train>()->state, nullptr);
}

TEST_F(ClientStateTest, ARoundWaitsForTheOutcomeOfTheOneBefore) {
  connect();
  train_to(1, 1, 1.5F);
  feed(Disconnected{retry("closed", "the coordinator died after its commit")});
  connect();
  ASSERT_EQ(sent<protocol::UpdateOffer>().size(), 1U) << "asks";
  hear(plan(2, 2));
  EXPECT_FALSE(did<Train>());
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kSettling);
  commit(1, 1);
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(value_of(did<Train>()->state), 1.5F);
}

TEST_F(ClientStateTest, WaitsThroughAnotherReconnect) {
  connect();
  train_to(1, 1, 1.5F);
  feed(Disconnected{retry("closed", "x")});
  connect();
  hear(plan(2, 2));
  feed(Disconnected{retry("closed", "x")});
  connect();
  ASSERT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  hear(protocol::TaskEnded{TaskId(1), "round-closed", "x"});
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(did<Train>()->state, nullptr);
}

TEST_F(ClientStateTest, AnEvaluationWaitsForNothing) {
  connect();
  train_to(1, 1, 1.5F);
  protocol::RoundPlan task = plan(2, 2);
  task.kind = protocol::TaskKind::kEvaluate;
  task.schema = {.scalars = {"loss"}};
  hear(task);
  EXPECT_TRUE(did<Train>());
}

TEST_F(ClientStateTest, ALaterAttemptTakesTheUpdateWithItsState) {
  connect();
  train_to(1, 1, 1.5F);
  hear(plan(7, 1));
  ASSERT_TRUE(did<StoreUpdate>());
  EXPECT_EQ(value_of(did<StoreUpdate>()->update.state), 1.5F);
  feed(UpdateStored{TaskId(7), Result<void>()});
  commit(7, 1);
  ASSERT_TRUE(did<KeepState>());
  EXPECT_EQ(did<KeepState>()->state.task, TaskId(7));
}

TEST_F(ClientStateTest, GoesOnFromWhatAnEarlierProcessLeft) {
  PendingUpdate pending = update(2, 2);
  pending.state = state(2);
  machine = ClientMachine(options(), Rng({.seed = 1}),
                          {.pending = {pending}, .states = {{RunId(1), 1, TaskId(1), state(1)}}});
  connect();
  hear(plan(3, 3));
  serve_model(TaskId(3));
  EXPECT_FALSE(did<Train>());
  hear(protocol::TaskEnded{TaskId(2), "round-closed", "x"});
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(value_of(did<Train>()->state), 1);
}

TEST_F(ClientStateTest, AnUpdateThatIsSettledAgainTakesNoStateBack) {
  PendingUpdate pending = update(1, 1);
  pending.state = state(1);
  machine = ClientMachine(options(), Rng({.seed = 1}),
                          {.pending = {pending}, .states = {{RunId(1), 2, TaskId(2), state(2)}}});
  connect();
  commit(1, 1);
  EXPECT_FALSE(did<KeepState>());
  EXPECT_TRUE(did<ForgetUpdate>());
  hear(plan(3, 3));
  serve_model(TaskId(3));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(value_of(did<Train>()->state), 2);
}

TEST_F(ClientStateTest, AStateOfAnotherPastIsDropped) {
  machine = ClientMachine(options(), Rng({.seed = 1}),
                          {.pending = {}, .states = {{RunId(1), 5, TaskId(5), state(5)}}});
  connect();
  hear(plan(9, 3));
  ASSERT_TRUE(did<ForgetState>());
  serve_model(TaskId(9));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(did<Train>()->state, nullptr);
}

TEST_F(ClientStateTest, ARoundThatIsTakenBackBringsTheStateBeforeIt) {
  connect();
  for (std::uint64_t n = 1; n <= 3; ++n) {
    train_to(n, static_cast<Round>(n), static_cast<float>(n));
    commit(n, static_cast<Round>(n));
  }
  hear(plan(13, 3));
  EXPECT_TRUE(did<RestoreState>());
  EXPECT_FALSE(did<ForgetState>());
  if (!did<Train>()) serve_model(TaskId(13));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(value_of(did<Train>()->state), 2);
  hear(plan(22, 2));
  EXPECT_TRUE(did<ForgetState>()) << "none is left of that round";
  if (!did<Train>()) serve_model(TaskId(22));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(did<Train>()->state, nullptr);
}

TEST_F(ClientStateTest, AStateBeforeTheLastOneOutlivesTheProcess) {
  machine = ClientMachine(
      options(), Rng({.seed = 1}),
      {.pending = {},
       .states = {{RunId(1), 2, TaskId(2), state(2)}, {RunId(1), 5, TaskId(5), state(5)}}});
  connect();
  hear(plan(9, 4));
  EXPECT_TRUE(did<RestoreState>());
  serve_model(TaskId(9));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(value_of(did<Train>()->state), 2);
}

// A round was taken back and repeated by others: its number does not show it.
TEST_F(ClientStateTest, AStateOfALostRoundIsNotUsedInALaterOne) {
  start_with({.pending = {},
              .states = {{RunId(1), 2, TaskId(2), state(2)}, {RunId(1), 5, TaskId(5), state(5)}}});
  EXPECT_EQ(value_of(trains_with(plan_after(9, 7, 5))), 5) << "it counted";
  EXPECT_EQ(value_of(trains_with(plan_after(10, 8, 2))), 2);
  EXPECT_THAT(said, Contains(HasSubstr("replaced by that of round 2")));
  EXPECT_EQ(trains_with(plan_after(11, 9, 0)), nullptr);
  EXPECT_THAT(said, Contains(HasSubstr("state of round 2 is dropped: the coordinator remembers no "
                                       "update of this client")));
}

// The server's memory may build on it.
TEST_F(ClientStateTest, ALostStateIsSaidToTheTrainer) {
  start_with({.pending = {}, .states = {{RunId(1), 2, TaskId(2), state(2)}}});
  trains_with(plan_after(9, 3, 2));
  EXPECT_FALSE(did<Train>()->state_lost) << "it is that of the last update that counted";
  EXPECT_EQ(trains_with(plan_after(10, 7, 5)), nullptr) << "an earlier one is another";
  EXPECT_TRUE(did<Train>()->state_lost);
  protocol::RoundPlan evaluation = plan_after(20, 7, 5);
  evaluation.kind = protocol::TaskKind::kEvaluate;
  trains_with(evaluation);
  EXPECT_FALSE(did<Train>()->state_lost) << "an evaluation needs none";
  trains_with(plan_after(21, 7, 5));
  EXPECT_TRUE(did<Train>()->state_lost) << "the coordinator has not heard so";
  feed(TrainingFinished{TaskId(21), retry(std::string(kStateLost), "")});
  EXPECT_EQ(trains_with(plan_after(11, 8, 0)), nullptr);
  EXPECT_FALSE(did<Train>()->state_lost) << "it has heard so";
}

// One client that lost its state makes all others drop theirs.
TEST_F(ClientStateTest, WhatWasMadeFromAStateThatIsDroppedAnswersNothing) {
  PendingUpdate made = update(7, 3);
  made.head.base.run_key = 77;
  made.state = state(7);
  made.made_from = made_from(plan_after(7, 3, 2));
  start_with({.pending = {made}, .states = {{RunId(1), 2, TaskId(2), state(2)}}});
  hear(plan_after(9, 3, 2));
  EXPECT_TRUE(did<StoreUpdate>()) << "as long as its state is that of the client";
  feed(UpdateStored{TaskId(9), Result<void>()});
  EXPECT_EQ(trains_with(plan_after(10, 3, 0)), nullptr) << "it trains once more";
  EXPECT_EQ(machine.pending_updates(), 0U);
  EXPECT_THAT(said, Contains(HasSubstr("state of round 2 is dropped: the coordinator remembers no "
                                       "update of this client")));
  EXPECT_THAT(said, Contains(HasSubstr("an unsettled update is dropped: it began with a model, a "
                                       "state or an input")));
}

TEST_F(ClientStateTest, ATrainingFromAStateThatIsDroppedIsCancelled) {
  start_with({.pending = {}, .states = {{RunId(1), 2, TaskId(2), state(2)}}});
  trains_with(plan_after(9, 3, 2));
  hear(plan_after(10, 3, 0));
  ASSERT_TRUE(did<CancelTraining>());
  EXPECT_EQ(did<CancelTraining>()->task, TaskId(9));
  EXPECT_TRUE(did<Train>()) << "with the inputs that it has";
  EXPECT_EQ(did<Train>()->state, nullptr);
}

// It counted, and then the memory of all was dropped: the server knows nothing of its state.
TEST_F(ClientStateTest, ASettledUpdateBringsNoStateThatTheServerForgot) {
  PendingUpdate made = update(7, 3);
  made.head.base.run_key = 77;
  made.state = state(7);
  start_with({.pending = {made}, .states = {}});
  EXPECT_EQ(trains_with(plan_after(9, 4, 0)), nullptr);
  EXPECT_EQ(machine.pending_updates(), 0U);
  commit(7, 3);
  EXPECT_FALSE(did<KeepState>());
}

// The state is damaged, the update is not, and meanwhile all begin again because of another client.
TEST_F(ClientStateTest, AnUpdateMadeFromAStateThatIsGoneAnswersNoFirstTraining) {
  PendingUpdate made = update(7, 3);
  made.head.base.run_key = 77;
  made.state = state(7);
  made.made_from = made_from(plan_after(7, 3, 2));
  start_with({.pending = {made}, .states = {}});
  EXPECT_EQ(trains_with(plan_after(9, 3, 0)), nullptr);
  EXPECT_EQ(machine.pending_updates(), 0U);
}

TEST_F(ClientStateTest, AnUpdateMadeWithOtherInputsAnswersNothing) {
  protocol::RoundPlan task = plan_after(7, 3, 0);
  task.inputs = {{"control", sha256(as_bytes("the one before")), 300}};
  PendingUpdate made = update(7, 3);
  made.head.base.run_key = 77;
  made.state = state(7);
  made.made_from = made_from(task);
  start_with({.pending = {made}, .states = {}});
  task.task = TaskId(8);
  task.inputs[0].sha256 = sha256(as_bytes("zeros"));
  hear(task);
  EXPECT_FALSE(did<StoreUpdate>());
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kFetching);
}

TEST_F(ClientStateTest, ALossThatIsOnItsWayDoesNotFailTheNextAttempt) {
  start_with({.pending = {}, .states = {}});
  trains_with(plan_after(9, 3, 2));
  ASSERT_TRUE(did<Train>()->state_lost);
  hear(plan_after(10, 3, 0));
  ASSERT_TRUE(did<Train>());
  EXPECT_FALSE(did<Train>()->state_lost);
  feed(TrainingFinished{TaskId(9), retry(std::string(kStateLost), "")});
  EXPECT_TRUE(sent<protocol::TaskFailed>().empty());
}

TEST_F(ClientStateTest, TheUpdateOfAFirstTrainingAnswersTheNextAttempt) {
  PendingUpdate made = update(7, 1);
  made.head.base.run_key = 77;
  made.state = state(7);
  made.made_from = made_from(plan_after(7, 1, 0));
  start_with({.pending = {made}, .states = {}});
  hear(plan_after(9, 1, 0));
  EXPECT_TRUE(did<StoreUpdate>());
}

TEST_F(ClientStateTest, WithoutAnUpdateThatCountedNoStateIsLost) {
  start_with({.pending = {}, .states = {}});
  trains_with(plan_after(9, 6, 0));
  EXPECT_FALSE(did<Train>()->state_lost) << "none counted";
  trains_with(plan_after(10, 7, 5));
  EXPECT_TRUE(did<Train>()->state_lost);
}

TEST_F(ClientStateTest, AStateOfAnotherFederationsRunIsNotUsed) {
  start_with({.pending = {}, .states = {{RunId(1), 1, TaskId(5), state(5)}}});
  EXPECT_EQ(trains_with(plan_after(9, 7, 0)), nullptr);
  EXPECT_THAT(said, Contains(HasSubstr("dropped")));
}

TEST_F(ClientStateTest, ThePlanTellsThatTheUpdateBeforeItCounted) {
  PendingUpdate pending = update(5, 1);
  pending.head.base.run_key = 77;
  pending.state = state(5);
  start_with({.pending = {pending}, .states = {}});
  EXPECT_EQ(value_of(trains_with(plan_after(9, 2, 5))), 5);
  EXPECT_EQ(machine.pending_updates(), 0U);
  EXPECT_EQ(machine.updates_counted(), 1U);
}

TEST_F(ClientStateTest, AnUpdateOfAnotherRunOfTheSameNumberAnswersNothing) {
  PendingUpdate pending = update(5, 1);
  pending.head.base.run_key = 66;
  start_with({.pending = {pending}, .states = {}});
  trains_with(plan_after(9, 1, 0));
  EXPECT_THAT(said, Contains(HasSubstr("an unsettled update is dropped")));
  EXPECT_EQ(machine.pending_updates(), 0U);
}

TEST_F(ClientStateTest, AnUpdateOfAnEarlierVersionIsBelieved) {
  start_with({.pending = {update(5, 1)}, .states = {}});
  hear(plan_after(9, 1, 0));
  ASSERT_TRUE(did<StoreUpdate>()) << "it answers the later attempt";
  EXPECT_EQ(did<StoreUpdate>()->update.head.task, TaskId(9));
}

// The store knows its task as one of an abandoned attempt, of which it says nothing.
TEST_F(ClientStateTest, ARoundDoesNotWaitForAnUpdateFromAnotherModel) {
  PendingUpdate pending = update(5, 2);
  pending.head.base.sha256 = sha256(as_bytes("another"));
  pending.state = state(5);
  start_with({.pending = {pending}, .states = {{RunId(1), 1, TaskId(1), state(1)}}});
  EXPECT_EQ(value_of(trains_with(plan(9, 2))), 1);
}

TEST_F(ClientStateTest, AFailureOfAnotherPastIsNotRepeated) {
  connect();
  trains_with(plan(5, 1));
  feed(TrainingFinished{TaskId(5), rejected("bad-data", "x")});
  hear(plan(5, 1));
  EXPECT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  protocol::RoundPlan again = plan(5, 1);
  again.base.sha256 = sha256(as_bytes("another"));
  hear(again);
  EXPECT_TRUE(sent<protocol::TaskFailed>().empty());
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kFetching);
}

TEST_F(ClientStateTest, ATrainingIsToldWhatIsHeldForOtherRuns) {
  PendingUpdate unsettled = update(7);
  unsettled.head.base.run = RunId(3);
  unsettled.state = state(7);
  machine = ClientMachine(options(), Rng({.seed = 1}),
                          {.pending = {unsettled},
                           .states = {{RunId(2), 2, TaskId(2), state(2)},
                                      {RunId(1), 1, TaskId(4), state(4)},
                                      {RunId(2), 5, TaskId(5), state(5)}}});
  connect();
  hear(plan(9, 2));
  serve_model(TaskId(9));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(did<Train>()->other_states_bytes,
            3 * state(2)->vectors.begin()->second.size() * sizeof(float));
}

// Where little of other runs' states fits beside a training.
class CrowdedClientTest : public ClientStateTest {
 protected:
  void start_with_room_for(std::size_t floats, Leftovers left = {}) {
    room = floats;
    ClientOptions small = options();
    small.check = [this](const protocol::RoundPlan&, std::uint64_t others) -> Result<void> {
      if (others <= room * sizeof(float)) return {};
      return overloaded("memory-in-use", "no memory");
    };
    machine = ClientMachine(small, Rng({.seed = 1}), std::move(left));
    connect();
  }
  protocol::RoundPlan plan_of(std::uint64_t run, Round round, Round rounds) {
    protocol::RoundPlan made = plan(++tasks_, round);
    made.run = made.base.run = RunId(run);
    made.rounds = rounds;
    return made;
  }
  // Whether it took the task.
  bool takes(const protocol::RoundPlan& task) {
    hear(task);
    dropped.clear();
    for (const Action& action : actions) {
      if (const auto* forget = std::get_if<ForgetState>(&action)) {
        dropped.push_back(forget->run.value());
      }
    }
    return sent<protocol::TaskFailed>().empty();
  }
  void finish(const protocol::RoundPlan& task) {
    if (!did<Train>()) serve_model(task.task);
    PendingUpdate made = update(task.task.value());
    made.head.base = task.base;
    made.state = state(1);
    feed(TrainingFinished{task.task, made});
    feed(UpdateStored{task.task, Result<void>()});
    hear(protocol::RoundCommitted{task.task, task.run, task.round, {}});
  }
  void train_round(std::uint64_t run, Round round, Round rounds) {
    const protocol::RoundPlan task = plan_of(run, round, rounds);
    ASSERT_TRUE(takes(task));
    finish(task);
  }

  std::size_t room = 0;                // for floats of other runs
  std::vector<std::uint64_t> dropped;  // whose states went for the last task

 private:
  std::uint64_t tasks_ = 0;
};

TEST_F(CrowdedClientTest, TheStateOfTheEndedRunMakesRoomWhereItIsNeeded) {
  start_with_room_for(2);
  train_round(1, 2, 2);
  train_round(2, 1, 9);  // goes on
  EXPECT_TRUE(takes(plan_of(3, 1, 9)));
  EXPECT_TRUE(dropped.empty());
  room = 1;
  EXPECT_TRUE(takes(plan_of(4, 1, 9)));
  EXPECT_EQ(dropped, std::vector<std::uint64_t>({1}));
  EXPECT_THAT(lines(), Contains(HasSubstr("state of run 1, which has ended, is dropped")));
}

TEST_F(CrowdedClientTest, RunsThatMayGoOnDoNotDestroyEachOthersStates) {
  start_with_room_for(0);
  train_round(1, 1, 9);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(takes(plan_of(2, 1, 9)));
    EXPECT_TRUE(dropped.empty());
    const auto failed = sent<protocol::TaskFailed>();
    ASSERT_EQ(failed.size(), 1U);
    EXPECT_EQ(failed[0].code, "memory-in-use");
    EXPECT_THAT(failed[0].message, HasSubstr("held are the states of run 1: raise limits.memory"));
    EXPECT_FALSE(failed[0].permanent) << "the other run may end";
    const protocol::RoundPlan next = plan_of(1, 2 + i, 9);
    EXPECT_TRUE(takes(next));
    EXPECT_EQ(machine.plan()->run, RunId(1));
    finish(next);
  }
  train_round(1, 9, 9);
  EXPECT_TRUE(takes(plan_of(2, 1, 9)));
  EXPECT_EQ(dropped, std::vector<std::uint64_t>({1}));
}

TEST_F(CrowdedClientTest, NothingIsDroppedWhereThatIsNotEnough) {
  start_with_room_for(1, {.states = {{RunId(7), 3, TaskId(70), state(1)}}});
  train_round(1, 2, 2);
  room = 0;
  EXPECT_FALSE(takes(plan_of(2, 1, 9))) << "no file says whether run 7 has ended";
  EXPECT_TRUE(dropped.empty());
  EXPECT_THAT(sent<protocol::TaskFailed>().at(0).message, HasSubstr("the states of run 1, 7"));
}

TEST_F(CrowdedClientTest, ARunThatWasStoppedHasEndedAndOneThatIsRestoredGoesOn) {
  start_with_room_for(9);
  train_round(1, 1, 9);
  const protocol::RoundPlan next = plan_of(1, 2, 9);
  ASSERT_TRUE(takes(next));
  hear(protocol::TaskEnded{next.task, "run-stopped", "the run was stopped"});
  train_round(2, 2, 3);
  train_round(2, 3, 3);
  ASSERT_TRUE(did<ForgetState>());
  EXPECT_EQ(did<ForgetState>()->run, RunId(1)) << "another run has ended since";
  ASSERT_TRUE(takes(plan_of(2, 3, 3))) << "its last round was taken back";
  room = 1;
  EXPECT_TRUE(takes(plan_of(3, 1, 9)));
  EXPECT_TRUE(dropped.empty());
  room = 0;
  EXPECT_FALSE(takes(plan_of(3, 2, 9)));
}

TEST_F(ClientStateTest, KeepsStatesOfABoundedNumberOfRuns) {
  connect();
  std::vector<RunId> forgotten;
  for (std::uint64_t run = 1; run <= 10; ++run) {
    const auto dropped = count_update_of(run);
    if (!dropped) continue;
    forgotten.push_back(*dropped);
    EXPECT_THAT(lines(), Contains(HasSubstr("dropped to make room")));
  }
  EXPECT_EQ(forgotten, std::vector({RunId(1), RunId(2)}));
}

// It counts rarely, between many others that end unseen.
TEST_F(ClientStateTest, ARunThatAsksKeepsItsState) {
  connect();
  for (std::uint64_t run = 1; run <= 8; ++run) EXPECT_EQ(count_update_of(run), std::nullopt);
  hear(plan(20, 2));
  ASSERT_EQ(machine.plan()->run, RunId(1));
  EXPECT_EQ(count_update_of(9), RunId(2));
}

// A run that goes on would lose what its clients remember.
TEST_F(ClientStateTest, StatesOfEndedRunsGoFirst) {
  connect();
  std::vector<RunId> forgotten;
  for (std::uint64_t run = 1; run <= 9; ++run) {
    if (const auto dropped = count_update_of(run, run == 5)) forgotten.push_back(*dropped);
  }
  EXPECT_EQ(forgotten, std::vector({RunId(5)}));
}

TEST_F(ClientStateTest, OfEndedRunsOnlyTheLastOnesStateIsKept) {
  connect();
  EXPECT_EQ(count_update_of(1), std::nullopt) << "it goes on";
  EXPECT_EQ(count_update_of(2, true), std::nullopt);
  for (std::uint64_t run = 3; run <= 20; ++run) {
    EXPECT_EQ(count_update_of(run, true), RunId(run - 1));
    for (const Action& action : actions) {
      if (const auto* say = std::get_if<Say>(&action)) {
        EXPECT_LE(say->level, LogLevel::kInfo);
      }
    }
  }
  EXPECT_EQ(count_update_of(21), std::nullopt) << "it goes on";
  protocol::RoundPlan next = plan_after(22, 2, 20, 0);
  next.run = next.base.run = RunId(20);
  EXPECT_EQ(value_of(trains_with(next)), 1) << "its last round may be taken back";
  next = plan_after(23, 2, 1, 0);
  EXPECT_EQ(value_of(trains_with(next)), 1) << "run 1 has not ended";
}

TEST_F(ClientStateTest, AStoppedRunWithoutAStateLeavesTheLastOneThere) {
  connect();
  count_update_of(2, true);
  train_to(1, 1, 1.5F);
  hear(protocol::TaskEnded{TaskId(1), "run-stopped", "the run was stopped"});
  EXPECT_FALSE(did<ForgetState>());
  EXPECT_EQ(count_update_of(3, true), RunId(2));
}

TEST_F(ClientStateTest, SaysWhichFailuresWouldComeAgain) {
  connect();
  hear(plan(1));
  serve_model(TaskId(1));
  feed(TrainingFinished{TaskId(1), unsupported("unknown-strategy", "x")});
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_TRUE(sent<protocol::TaskFailed>()[0].permanent);
  hear(plan(2));
  serve_model(TaskId(2));
  feed(TrainingFinished{TaskId(2), rejected("diverged", "x")});
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_FALSE(sent<protocol::TaskFailed>()[0].permanent);
}

}  // namespace
}  // namespace starling::client

// SPDX-License-Identifier: Apache-2.0
// Clients that have lost what a strategy keeps on them: who begins again, from what, and that a
// restarted coordinator goes on as if it had not been away.
#include "coordinator/machine/lost_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/coordinator_machine_fixture.h"

namespace starling::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

strategy::StateSnapshot state_of(std::size_t elements, float value) {
  strategy::State<float> state;
  state.vectors["control"] = linalg::AlignedVector<float>(elements, value);
  return std::make_shared<const strategy::State<float>>(std::move(state));
}

// Three clients a, b and c of a run that trains with scaffold, each round with all of them.
class LostStatesTest : public CoordinatorMachineTest {
 protected:
  LostStatesTest() { use("scaffold"); }

  void use(const std::string& name) {
    Job job = context.job;
    job.training.strategy.name = name;
    if (name == "diloco") job.training.train.optimizer = "adamw";
    job.job.rounds = 20;
    job.round.cohort = 3;
    job.round.wait_for = 3;
    context = prepare_run(job, nullptr).value();
    can_do = context.abilities();
  }
  RunPosition position(Round round, float value) const {
    const std::string name = "round " + std::to_string(round);
    return make_position(*context.strategy, {RunId(1), round, sha256(as_bytes(name)), 7}, model,
                         round == 0 ? state_of(model->size(), 0) : state_of(model->size(), value));
  }
  void begin() {
    feed(RunSubmitted{to_run_start(RunId(1), context, position(0, 0), {}, {})});
    join("a", 1);
    join("b", 2);
    join("c", 3);
    take_plans();
  }
  void take_plans() {
    plans.clear();
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      plans[std::string(1, static_cast<char>('a' + session.value() - 1))] = plan;
    }
  }
  // One round: those of `losers` have lost their states, the others count. Then the next one opens.
  void round(const std::string& losers = "") {
    const Round number = plans.begin()->second.round;
    lines.clear();
    for (const auto& [client, plan] : plans) {
      const auto session = static_cast<std::uint64_t>(client[0] - 'a') + 1;
      if (losers.find(client) != std::string::npos) {
        hear(session, protocol::TaskFailed{plan.task, std::string(client::kStateLost), "gone"});
        if (did<CommitRound>().empty() && did<AbandonRound>().empty()) keep_lines();
      } else {
        hear(session, protocol::UpdateOffer{head(plan)});
        feed(UploadOpened{plan.task, head(plan).payload_bytes});
        feed(UploadSummed{plan.task, norm});
      }
    }
    if (did<CommitRound>().empty()) {  // abandoned
      keep_lines();
      now += context.job.round.retry_pause;
      feed(Tick{});
    } else {
      feed(RoundDurable{RunId(1), Durable{position(number, static_cast<float>(number)), {}}});
    }
    keep_lines();
    take_plans();
  }
  void keep_lines() {
    for (const Say& said : did<Say>()) lines.push_back(said.line);
  }
  // Of what the open round begins with, which is what its clients fetch.
  float control() const {
    const auto begins = did<BeginRound>();
    EXPECT_EQ(begins.size(), 1U);
    const std::span<const float> values = begins.at(0).base.state->vectors.at("control");
    EXPECT_EQ(plans.begin()->second.inputs.at(0).sha256, sha256(as_bytes(values)));
    return values[0];
  }

  std::map<std::string, protocol::RoundPlan> plans;
  std::vector<std::string> lines;
  double norm = 1;  // of each update
};

TEST_F(LostStatesTest, AfterARoundThatCommitsAllBeginAgain) {
  begin();
  round();
  EXPECT_EQ(control(), 1);
  EXPECT_EQ(plans.at("a").last_counted.round, 1U);
  round("b");
  EXPECT_EQ(control(), 0) << "the strategy's first state";
  for (const auto& [client, plan] : plans) {
    EXPECT_EQ(plan.last_counted, protocol::CountedTask()) << client;
    EXPECT_EQ(plan.base.round, 2U) << "the model stays";
  }
  EXPECT_THAT(lines, Contains(HasSubstr("what 'scaffold' remembers begins again, here and on all "
                                        "clients: b lost its part of it")));
  round();
  EXPECT_EQ(control(), 3);
  EXPECT_EQ(plans.at("b").last_counted.round, 3U);
}

TEST_F(LostStatesTest, AfterAnAttemptThatIsAbandonedAllBeginAgain) {
  context.job.round.attempts_max = 1;  // it does not count: perhaps all have lost theirs
  begin();
  round();
  round("abc");
  EXPECT_EQ(plans.at("a").attempt, 2U);
  EXPECT_EQ(control(), 0);
  EXPECT_EQ(plans.at("c").last_counted, protocol::CountedTask());
  EXPECT_THAT(lines, Contains(HasSubstr("a, b, c lost its part")));
}

TEST_F(LostStatesTest, WhereTheServerKeepsNothingOfTheClientsOnlyOneBeginsAgain) {
  use("diloco");
  begin();
  round();
  round("b");
  EXPECT_EQ(did<BeginRound>().at(0).base.state->vectors.at("control")[0], 2);
  EXPECT_EQ(plans.at("a").last_counted.round, 2U);
  EXPECT_EQ(plans.at("b").last_counted, protocol::CountedTask());
}

// N of the equations: who cannot contribute has no part in what is remembered.
TEST_F(LostStatesTest, WhoCannotDoTheRunIsNotOfItsPopulation) {
  begin();
  can_do.clear();
  join("d", 4);
  round();
  EXPECT_EQ(did<BeginRound>().at(0).population, 3U);
}

TEST_F(LostStatesTest, WhoNeverContributedHasNothingToLose) {
  begin();
  round("b");
  EXPECT_EQ(control(), 1);
  round("b");
  EXPECT_EQ(control(), 2);
  EXPECT_EQ(plans.at("a").last_counted.round, 2U);
  round("b");
  EXPECT_THAT(lines, Contains(HasSubstr("b is left out of this run from now on: its last 3 tasks "
                                        "failed")));
}

TEST_F(LostStatesTest, WhoLosesItsStateAgainAndAgainIsLeftOut) {
  begin();
  for (int loss = 1; loss <= 3; ++loss) {
    round();
    EXPECT_TRUE(plans.contains("b"));
    round("b");
  }
  EXPECT_THAT(lines,
              Contains(HasSubstr("b is left out of this run from now on: it said 3 times that it "
                                 "lost what 'scaffold' keeps on it")));
  EXPECT_FALSE(plans.contains("b"));
  EXPECT_TRUE(plans.contains("a"));
}

// Their first updates are as large again as those of the first rounds.
TEST_F(LostStatesTest, TheFirstRoundsBoundTheNormsOfThoseWhoBeginAgain) {
  use("feddyn");
  begin();
  norm = 5;
  for (int i = 0; i < 5; ++i) round();
  norm = 1e-3;
  for (int i = 0; i < 5; ++i) round();
  EXPECT_NEAR(*did<BeginRound>().at(0).norm_max, 1e-2, 1e-9);
  round("c");
  EXPECT_NEAR(*did<BeginRound>().at(0).norm_max, 50, 1e-9);
}

// One says so, and the other's update ends the row of its own failures.
TEST_F(LostStatesTest, LossesThatAreInventedByTurnsDoNotKeepARunFromEnding) {
  context.job.round.min_updates = 3;
  context.job.round.attempts_max = 5;
  begin();
  for (int attempt = 1; attempt <= 5; ++attempt) {
    ASSERT_FALSE(plans.empty());
    round(attempt % 2 == 0 ? "a" : "b");
  }
  EXPECT_THAT(lines, Contains(HasSubstr("abandoned")));
  EXPECT_EQ(machine.find_run(RunId(1)), nullptr);
}

TEST_F(LostStatesTest, AReplayRepeatsIt) {
  RunStart start = to_run_start(RunId(1), context, position(0, 0), {}, {});
  for (Round r = 1; r <= 3; ++r) start.replay.contributors[r] = {"a", "b", "c"};
  start.replay.populations[1] = 6;
  start.replay.lost[1] = {"a"};  // which never contributed
  start.replay.lost[3] = {"b"};
  feed(RunSubmitted{std::move(start)});
  join("a", 1);
  join("b", 2);
  join("c", 3);
  take_plans();
  EXPECT_EQ(control(), 0);
  EXPECT_EQ(did<BeginRound>().at(0).population, 6U) << "others were admitted then";
  round();
  EXPECT_EQ(did<BeginRound>().at(0).population, 3U);
  EXPECT_EQ(control(), 1);
  round();
  EXPECT_EQ(control(), 0);
  EXPECT_EQ(plans.at("a").last_counted, protocol::CountedTask());
}

// --- after a restart ----------------------------------------------------------------------------

class LostStateRecords : public LostStatesTest {
 protected:
  static store::RoundRecord record(Round round, Attempt attempt, store::RoundState state,
                                   const std::string& losers) {
    store::RoundRecord made;
    made.key = {RunId(1), round, attempt};
    made.state = state;
    for (const char client : std::string("abc")) {
      const std::string name(1, client);
      if (losers.find(client) != std::string::npos) {
        made.result.failures.push_back({name, std::string(client::kStateLost), "gone", 0, 0});
      } else if (state == store::RoundState::kCommitted) {
        made.result.contributions.push_back({name, TaskId(round), 1, 1});
      }
    }
    return made;
  }
  static store::RoundRecord committed(Round round, const std::string& losers = "",
                                      Attempt attempt = 1) {
    return record(round, attempt, store::RoundState::kCommitted, losers);
  }
  static store::RoundRecord abandoned(Round round, const std::string& losers) {
    return record(round, 1, store::RoundState::kAbandoned, losers);
  }
  RunStart start_after(Round round, const std::vector<store::RoundRecord>& records) const {
    return to_run_start(RunId(1), context, position(round, 5), records, {});
  }
  static float control_of(const RunStart& start) {
    return start.at.state->vectors.at("control")[0];
  }
};

TEST_F(LostStateRecords, ALossInTheLastCommittedRoundHolds) {
  const RunStart start = start_after(2, {committed(1), committed(2, "b")});
  EXPECT_EQ(control_of(start), 0);
  EXPECT_FALSE(start.counted.contains("a"));
  EXPECT_EQ(start.at.version.round, 2U);
}

TEST_F(LostStateRecords, ALossInAnAbandonedAttemptOfTheNextRoundHolds) {
  const RunStart start = start_after(2, {committed(1), committed(2), abandoned(3, "abc")});
  EXPECT_EQ(control_of(start), 0);
  EXPECT_FALSE(start.counted.contains("a"));
  EXPECT_EQ(start.attempts.at(3).last, 1U);
  EXPECT_EQ(start.attempts.at(3).failed, 0) << "it does not count toward the limit";
  EXPECT_EQ(start_after(0, {abandoned(1, "a")}).attempts.at(1).failed, 1) << "nothing was lost";
}

TEST_F(LostStateRecords, ALaterRoundsStateIsMadeOfWhatBeganAnew) {
  const RunStart start =
      start_after(3, {committed(1), abandoned(2, "b"), committed(2, "", 2), committed(3)});
  EXPECT_EQ(control_of(start), 5);
  EXPECT_EQ(start.counted.last_of("a").round, 3U);
  const RunStart later = start_after(3, {committed(1), committed(2, "b"), committed(3)});
  EXPECT_EQ(control_of(later), 5);
}

// Attempt 1 of round 3 was abandoned, and then round 2 was taken back because of its model: records
// come in the order in which the attempts were opened.
TEST_F(LostStateRecords, ARoundThatWasTakenBackDoesNotRepeatALoss) {
  const std::vector<store::RoundRecord> records = {
      committed(1), record(2, 1, store::RoundState::kAbandoned, ""), abandoned(3, "b"),
      committed(2, "", 2), committed(3, "c", 2)};
  const RunStart before = start_after(1, {records.begin(), records.begin() + 3});
  EXPECT_EQ(control_of(before), 0);
  const RunStart between = start_after(2, {records.begin(), records.begin() + 4});
  EXPECT_EQ(control_of(between), 5);
  EXPECT_EQ(between.counted.last_of("c").round, 2U);
}

TEST_F(LostStateRecords, ALossIsNoFaultAndAnInventedOneIs) {
  const RunStart honest = start_after(
      4, {committed(1), abandoned(2, "b"), committed(2, "", 2), committed(3, "b"), committed(4)});
  EXPECT_FALSE(honest.failures.left_out("b"));
  const RunStart again = start_after(5, {committed(1), committed(2, "b"), committed(3),
                                         committed(4, "b"), committed(5), abandoned(6, "b")});
  EXPECT_TRUE(again.failures.left_out("b")) << "three times";
  const RunStart invented =
      start_after(3, {committed(1, "b"), committed(2, "b"), committed(3, "b")});
  EXPECT_TRUE(invented.failures.left_out("b"));
  EXPECT_EQ(control_of(invented), 5);
}

}  // namespace
}  // namespace starling::coordinator

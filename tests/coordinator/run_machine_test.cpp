// SPDX-License-Identifier: Apache-2.0
// A run whose attempts fail for reasons of the coordinator's own, and what its clients are told of
// attempts that are over.
#include "coordinator/machine/run_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "coordinator/machine/client_fit.h"
#include "tests/coordinator/coordinator_machine_fixture.h"

namespace starling::coordinator {
namespace {

using ::testing::HasSubstr;

class RunMachineTest : public CoordinatorMachineTest {
 protected:
  // As a restarted coordinator finds the first round.
  store::RoundRecord abandoned(Attempt attempt, const std::string& code) const {
    return {.key = {RunId(1), 1, attempt},
            .state = store::RoundState::kAbandoned,
            .result = {.failures = {{"a", code, "x", 0, 0}}},
            .abandonment = store::Abandonment{"too-few-updates", "0 of 1"}};
  }
  void miss_deadline() {
    now += context.job.round.deadline - 1s;
    for (const std::uint64_t session : {1, 2}) hear(session, protocol::Ping{});
    now += 1s;
    feed(Tick{});
    ASSERT_EQ(did<AbandonRound>().size(), 1U);
  }
  void wait_for_attempt() {
    now += context.job.round.retry_pause;
    feed(Tick{});
  }
  std::size_t count_lines(const std::string& part) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        did<Say>(), [&](const Say& say) { return say.line.find(part) != std::string::npos; }));
  }
};

TEST_F(RunMachineTest, OnlyClientsThatMatchByNameAreToldTheColumns) {
  context.for_clients.data.columns = {"x", "y"};
  submit();
  can_do = {"names"};
  join("a", 1);
  can_do = {};
  join("b", 2);
  std::map<SessionId, bool> told;
  for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
    told[session] = std::ranges::any_of(
        plan.settings, [](const auto& setting) { return setting.first == "data.columns"; });
  }
  EXPECT_EQ(told, (std::map<SessionId, bool>{{SessionId(1), true}, {SessionId(2), false}}));
}

// --- clients of attempts that are over ----------------------------------------------------------

TEST_F(RunMachineTest, TheClientsOfAnAbandonedAttemptAreToldWhenTheRunIsStopped) {
  open_round();
  miss_deadline();
  EXPECT_TRUE(sent<protocol::TaskEnded>().empty()) << "a later attempt may use what they train";
  feed(StopRun{RunId(1)});
  const auto ended = sent<protocol::TaskEnded>();
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].second.task, plan_a.task);
  EXPECT_EQ(ended[1].second.task, plan_b.task);
  EXPECT_EQ(ended[0].second.code, "run-stopped");
}

TEST_F(RunMachineTest, TheClientsOfTheLastAttemptAreToldThatTheRunFailed) {
  context.job.round.attempts_max = 1;
  open_round();
  miss_deadline();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 2U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "too-few-updates");
}

TEST_F(RunMachineTest, AClientThatNoLaterAttemptDrewIsToldWhenTheRoundIsOver) {
  context.job.round.cohort = 1;
  context.job.round.attempts_max = 100;
  submit();
  join("a", 1);
  join("b", 2);
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  const auto first = sent<protocol::RoundPlan>()[0];
  miss_deadline();
  wait_for_attempt();
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  EXPECT_TRUE(sent<protocol::TaskEnded>().empty());
  const auto last = sent<protocol::RoundPlan>()[0];
  ASSERT_NE(last.first, first.first) << "choose another seed";
  upload(last.first.value(), last.second);
  feed(UploadSummed{last.second.task, 1.0});
  commit();
  const auto ended = sent<protocol::TaskEnded>();
  ASSERT_EQ(ended.size(), 1U) << "not the one that counted";
  EXPECT_EQ(ended[0].first, first.first);
  EXPECT_EQ(ended[0].second.task, first.second.task);
  EXPECT_EQ(ended[0].second.code, "round-closed");
}

TEST_F(RunMachineTest, AClientWhoseTaskFailedWhileItWasAwayIsToldWhenItComesBack) {
  open_round();
  feed(SessionClosed{SessionId(1)});
  now += context.job.round.reconnect_grace;
  feed(Tick{});
  EXPECT_EQ(phase()->find(plan_a.task)->state, RoundMachine::State::kFailed);
  feed(SessionOpened{SessionId(3), "a"});
  hear(3, protocol::Hello{.rows = 10});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.task, plan_a.task);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "disconnected");
}

TEST_F(RunMachineTest, ARestartKnowsWhomToTellOfAttemptsThatAreOver) {
  context.job.round.cohort = 1;
  context.job.round.attempts_max = 100;
  store::RoundRecord attempt = abandoned(1, "deadline");
  attempt.cohort = {{"a", TaskId(77)}, {"b", TaskId(78)}};
  feed(RunSubmitted{start_of(1, {attempt})});
  join("a", 1);
  join("b", 2);
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  const auto [session, plan] = sent<protocol::RoundPlan>()[0];
  upload(session.value(), plan);
  feed(UploadSummed{plan.task, 1.0});
  commit();
  const auto ended = sent<protocol::TaskEnded>();
  ASSERT_EQ(ended.size(), 1U) << "not the one that counted";
  EXPECT_NE(ended[0].first, session);
  EXPECT_EQ(ended[0].second.task, TaskId(session == SessionId(1) ? 78 : 77));
  EXPECT_EQ(ended[0].second.code, "round-closed");
}

TEST_F(RunMachineTest, WhatAnAttemptWasAbandonedForIsSaidAfterItsFailuresAreStored) {
  open_round();
  miss_deadline();
  const auto is_line = [](const Action& action) {
    const auto* say = std::get_if<Say>(&action);
    return say != nullptr && say->line.find("abandoned: ") != std::string::npos;
  };
  const auto line = std::ranges::find_if(actions, is_line);
  ASSERT_NE(line, actions.end());
  ASSERT_NE(line, actions.begin());
  EXPECT_TRUE(std::holds_alternative<AbandonRound>(*(line - 1)))
      << "whose failures the shell says first";
}

// As one that trains does when it is connected again, whose attempt was perhaps abandoned
// meanwhile.
TEST_F(RunMachineTest, WhoAsksForNothingOfATaskHearsWhetherItIsOver) {
  open_round();
  const std::uint64_t end = plan_a.model_bytes;
  hear(1, protocol::ModelRequest{plan_a.task, end, end});
  EXPECT_TRUE(actions.empty()) << "the task is open";
  miss_deadline();
  hear(1, protocol::ModelRequest{plan_a.task, end, end});
  ASSERT_EQ(did<LookUpTask>().size(), 1U);
  EXPECT_EQ(did<LookUpTask>()[0].task, plan_a.task);
}

TEST_F(RunMachineTest, AfterARestartClientsHaveTimeToComeBackWhateverTheGrace) {
  context.job.round.reconnect_grace = 0s;
  context.job.round.min_updates = 1;
  context.job.round.deadline = 10min;
  open_round();
  const store::RoundRecord open{.key = {RunId(1), 1, 1},
                                .state = store::RoundState::kOpen,
                                .cohort = {{"a", plan_a.task}, {"b", plan_b.task}}};
  CoordinatorMachine restarted({});
  restarted.on(ClientAdmitted{"a", true}, now);
  restarted.on(ClientAdmitted{"b", true}, now);
  restarted.on(RunSubmitted{start_of(1, {}, open)}, now);
  restarted.on(Tick{}, now + 59s);
  restarted.on(SessionOpened{SessionId(1), "a"}, now + 59s);
  actions = restarted.on(MessageReceived{SessionId(1), {protocol::Hello{}, {}}}, now + 59s);
  EXPECT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  ASSERT_NE(restarted.find_run(RunId(1))->phase(), nullptr);
  const RoundMachine& phase = *restarted.find_run(RunId(1))->phase();
  restarted.on(Tick{}, now + 60s);
  EXPECT_EQ(phase.find(plan_b.task)->state, RoundMachine::State::kFailed);
  restarted.on(SessionClosed{SessionId(1)}, now + 61s);
  actions = restarted.on(Tick{}, now + 61s);
  EXPECT_EQ(restarted.find_run(RunId(1))->phase(), nullptr) << "from then on the grace applies";
}

TEST_F(RunMachineTest, ARestartBetweenRoundsLeavesClientsTheSameTime) {
  context.job.round.reconnect_grace = 30s;
  context.job.round.min_updates = 1;
  context.job.round.wait_for = 1;
  context.job.round.deadline = 10min;
  CoordinatorMachine restarted({});
  restarted.on(ClientAdmitted{"a", true}, now);
  restarted.on(ClientAdmitted{"b", true}, now);
  restarted.on(RunSubmitted{start_of(1)}, now);
  restarted.on(SessionOpened{SessionId(1), "a"}, now);
  restarted.on(MessageReceived{SessionId(1), {protocol::Hello{}, {}}}, now);
  restarted.on(Tick{}, now);
  const RoundMachine* const phase = restarted.find_run(RunId(1))->phase();
  ASSERT_NE(phase, nullptr);
  const TaskId absent = phase->task_of("b").value();
  restarted.on(Tick{}, now + 59s);
  EXPECT_EQ(phase->find(absent)->state, RoundMachine::State::kAsked);
  restarted.on(Tick{}, now + 60s);
  EXPECT_EQ(phase->find(absent)->state, RoundMachine::State::kFailed);
}

// --- no room ------------------------------------------------------------------------------------

TEST_F(RunMachineTest, UploadsWithoutRoomMissNoDeadlineAndFailNoRun) {
  const Error full = overloaded("disk-full", "no space left on device");
  submit();
  join("a", 1);
  join("b", 2);
  for (int attempt = 1; attempt <= context.job.round.attempts_max + 2; ++attempt) {
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U) << attempt;
    for (std::uint64_t session = 1; session <= 2; ++session) {
      const auto& plan = plans[session - 1].second;
      hear(session, protocol::UpdateOffer{head(plan)});
      feed(UploadOpened{plan.task, full});
      EXPECT_EQ(count_lines("updates wait for the disk: no space left on device"),
                session == 1 ? 1U : 0U);
    }
    miss_deadline();
    const auto failures = did<AbandonRound>()[0].summary.failures;
    ASSERT_EQ(failures.size(), 2U);
    EXPECT_EQ(failures[0].code, kNoRoom);
    EXPECT_THAT(failures[0].reason, HasSubstr("no space left on device"));
    EXPECT_THAT(did<AbandonRound>()[0].reason.message(),
                HasSubstr("2 no-room (in the coordinator's spool or on its disk)"));
    EXPECT_TRUE(did<FinishRun>().empty());
    wait_for_attempt();
  }
  EXPECT_TRUE(machine.find_run(RunId(1))->candidates().reach().left_out.empty());
}

TEST_F(RunMachineTest, AttemptsThatLackRoomAgainAndAgainAreLoggedLessOften) {
  context.job.round.attempts_max = 100;
  submit();
  join("a", 1);
  join("b", 2);
  std::vector<int> logged;
  const auto try_once = [&](int attempt, const Error* full) {
    std::size_t lines = count_lines("selected 2 of 2 clients");
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U);
    for (std::uint64_t session = 1; full != nullptr && session <= 2; ++session) {
      const protocol::RoundPlan& plan = plans[session - 1].second;
      hear(session, protocol::UpdateOffer{head(plan)});
      feed(UploadOpened{plan.task, *full});
      lines += count_lines("updates wait for the disk");
    }
    miss_deadline();
    lines += count_lines("abandoned: 0 of the 1 updates");
    if (lines > 0) logged.push_back(attempt);
    EXPECT_EQ(did<AbandonRound>()[0].is_repetition, lines == 0);
    wait_for_attempt();
  };
  const Error full = overloaded("disk-full", "no space left on device");
  for (int attempt = 1; attempt <= 18; ++attempt) try_once(attempt, &full);
  EXPECT_EQ(logged, (std::vector<int>{1, 2, 3, 4, 8, 16}));
  try_once(19, nullptr);
  EXPECT_EQ(logged.back(), 19) << "it failed for another reason";
}

TEST_F(RunMachineTest, AnUploadThatGotRoomMissesTheDeadlineAsBefore) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, overloaded("spool-full", "no room")});
  feed(UploadOpened{plan_a.task, 0});
  miss_deadline();
  EXPECT_EQ(did<AbandonRound>()[0].summary.failures[0].code, "deadline");
}

TEST_F(RunMachineTest, AfterARestartAttemptsWithoutRoomCountAsLittle) {
  const std::string no_room(kNoRoom);
  const auto start = start_of(1, {abandoned(1, no_room), abandoned(2, "deadline")});
  EXPECT_EQ(start.attempts.at(1).last, 2U);
  EXPECT_EQ(start.attempts.at(1).failed, 1);
}

TEST_F(RunMachineTest, AnUploadThatMetAFullDiskIsRequestedAgain) {
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, overloaded("disk-full", "no space left on device")});
  EXPECT_TRUE(sent<protocol::TaskEnded>().empty()) << "the client would forget its update";
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U) << "to which a finished update is offered";
  EXPECT_EQ(sent<protocol::RoundPlan>()[0].second.task, plan_a.task);
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, 1.0});
  EXPECT_EQ(sent<protocol::UpdateReceived>().size(), 1U);
}

// A quota: the disk looks free whenever an upload begins.
TEST_F(RunMachineTest, AnUploadThatMeetsAFullDiskAgainAndAgainIsNotSentWithoutEnd) {
  open_round();
  for (int n = 1; n <= 2; ++n) {
    upload(1, plan_a);
    feed(UploadSummed{plan_a.task, overloaded("disk-full", "quota exceeded")});
  }
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, kNoRoom);
  EXPECT_TRUE(sent<protocol::RoundPlan>().empty());
}

// --- uploads without progress -------------------------------------------------------------------

TEST_F(RunMachineTest, AClientWhoseUploadLostItsRoomMayOfferItAgain) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, 0});
  feed(UploadStalled{plan_a.task});
  EXPECT_EQ(closed_because(), "upload-stalled");
  ASSERT_EQ(sent<protocol::Bye>().size(), 1U);
  EXPECT_EQ(sent<protocol::Bye>()[0].second.message,
            "its upload brought less than 65.5 kB in 10s while other uploads waited for its room: "
            "offer the update again");
  EXPECT_TRUE(sent<protocol::TaskEnded>().empty()) << "the client would forget its update";
  EXPECT_TRUE(did<DropUpload>().empty()) << "what has come is kept";
  EXPECT_EQ(count_lines("[round 1/2] a: its upload brought less than"), 1U);
  feed(UploadStalled{plan_a.task});
  EXPECT_TRUE(actions.empty()) << "it has no room any more";
  feed(SessionOpened{SessionId(3), "a"});
  hear(3, protocol::Hello{.rows = 10});
  upload(3, plan_a);
  feed(UploadSummed{plan_a.task, 1.0});
  EXPECT_EQ(sent<protocol::UpdateReceived>().size(), 1U);
}

// Attempts that lack room do not count against the run: it would go on without end.
TEST_F(RunMachineTest, OneThatStalledFailsByNameAlsoWhereItWaitsForRoomAgain) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, 0});
  feed(UploadStalled{plan_a.task});
  feed(SessionOpened{SessionId(3), "a"});
  hear(3, protocol::Hello{.rows = 10});
  hear(3, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, overloaded("spool-full", "no room")});
  now += context.job.round.deadline;
  feed(Tick{});
  const auto failures = did<AbandonRound>().at(0).summary.failures;
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].code, "upload-stalled");
  EXPECT_FALSE(lacked_room(failures));
  EXPECT_TRUE(is_circumstance("upload-stalled", protocol::TaskKind::kTrain));
}

// --- clients that do not answer -----------------------------------------------------------------

// Three clients, of which a round of two needs two; c answers no task.
class SilentClientTest : public RunMachineTest {
 protected:
  SilentClientTest() {
    context.job.job.rounds = 100;
    context.job.round.cohort = 3;
    context.job.round.min_updates = 2;
    context.job.round.wait_for = 3;
    context.job.round.attempts_max = 100;
    submit();
    join("a", 1);
    join("b", 2);
    join("c", 3);
    plans = sent<protocol::RoundPlan>();
  }
  // Sessions that the open attempt asked when it began.
  std::set<std::uint64_t> asked() const {
    std::set<std::uint64_t> sessions;
    for (const auto& [session, plan] : plans) sessions.insert(session.value());
    return sessions;
  }
  void answer(std::uint64_t session, const protocol::RoundPlan& plan) {
    upload(session, plan);
    feed(UploadSummed{plan.task, 1.0});
  }
  // The deadline passes; `answering` answered before. Returns what was said of the end.
  std::vector<Say> pass_round(const std::set<std::uint64_t>& answering) {
    for (const auto& [session, plan] : plans) {
      if (answering.contains(session.value())) answer(session.value(), plan);
    }
    if (did<CommitRound>().empty()) {
      now += context.job.round.deadline - 1s;
      for (const std::uint64_t session : {1, 2, 3, 4, 5}) hear(session, protocol::Ping{});
      now += 1s;
      feed(Tick{});
    }
    auto said = did<Say>();
    if (!did<CommitRound>().empty()) {
      records.push_back(record(did<CommitRound>()[0].summary, store::RoundState::kCommitted));
      commit();
    } else {
      records.push_back(record(did<AbandonRound>().at(0).summary, store::RoundState::kAbandoned));
      wait_for_attempt();
    }
    plans = sent<protocol::RoundPlan>();
    return said;
  }
  static store::RoundRecord record(const RoundSummary& summary, store::RoundState state) {
    return {.key = key_of(summary), .state = state, .result = to_record(summary, nullptr)};
  }
  static bool says(const std::vector<Say>& said, const std::string& part) {
    return std::ranges::any_of(said, [&](const Say& s) { return s.line.find(part) != part.npos; });
  }
  Round round() const { return plans.at(0).second.round; }
  void leave_c_out() {
    for (int i = 0; i < ClientPauses::kTrainingsInARowMax; ++i) pass_round({1, 2});
    ASSERT_EQ(asked(), (std::set<std::uint64_t>{1, 2}));
  }
  // b goes away for good while the round waits for it, so that the next attempt needs c.
  void lose_b() {
    answer(1, plans[0].second);
    feed(SessionClosed{SessionId(2)});
    now += context.job.round.reconnect_grace;
    feed(Tick{});
    ASSERT_EQ(did<AbandonRound>().size(), 1U);
    wait_for_attempt();
    plans = sent<protocol::RoundPlan>();
  }
  void reconnect(const std::string& client, std::uint64_t before, std::uint64_t session) {
    feed(SessionClosed{SessionId(before)});
    feed(SessionOpened{SessionId(session), client});
    hear(session, protocol::Hello{.rows = 10});
  }

  std::vector<std::pair<SessionId, protocol::RoundPlan>> plans;  // of the open attempt
  std::vector<store::RoundRecord> records;                       // as the store has them
};

TEST_F(SilentClientTest, AClientThatLetsDeadlinesPassIsLeftOutByName) {
  const std::string line =
      "c is left out of this run for now: 3 trainings in a row ended without "
      "its update (no update came within 60.0 s)";
  for (int i = 1; i <= ClientPauses::kTrainingsInARowMax; ++i) {
    EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3})) << i;
    EXPECT_EQ(says(pass_round({1, 2}), line), i == ClientPauses::kTrainingsInARowMax) << i;
  }
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2}));
  const TimePoint before = now;
  pass_round({1, 2});
  EXPECT_EQ(now, before) << "the round need not wait for its deadline";
  const auto left_out = machine.find_run(RunId(1))->candidates().reach().left_out;
  ASSERT_EQ(left_out.size(), 1U);
  EXPECT_EQ(left_out[0].client, "c");
  EXPECT_EQ(left_out[0].reason,
            "3 trainings in a row ended without its update (no update came within 60.0 s); it is "
            "asked again from round 12 on, or once it has connected again, or where a round has "
            "too few other clients");
  EXPECT_TRUE(start_of(1, records).missed.left_out("c", round())) << "a restart knows";
}

TEST_F(SilentClientTest, AnAnswerBreaksTheRow) {
  for (int i = 0; i < 3; ++i) {
    for (int k = 1; k < ClientPauses::kTrainingsInARowMax; ++k) pass_round({1, 2});
    EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3}));
    pass_round({1, 2, 3});
  }
  for (int k = 1; k < ClientPauses::kTrainingsInARowMax; ++k) pass_round({1, 2});
  hear(3, protocol::TaskFailed{plans.at(2).second.task, "diverged", "the loss is not finite"});
  answer(1, plans[0].second);
  answer(2, plans[1].second);
  records.push_back(record(did<CommitRound>().at(0).summary, store::RoundState::kCommitted));
  commit();
  plans = sent<protocol::RoundPlan>();
  pass_round({1, 2});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3})) << "a failure is an answer";
  EXPECT_FALSE(start_of(1, records).missed.left_out("c", round()));
}

TEST_F(SilentClientTest, OneThatConnectsAgainIsAskedOnceMore) {
  leave_c_out();
  reconnect("c", 3, 4);
  pass_round({1, 2});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 4}));
  pass_round({1, 2});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2}));
  const auto left_out = machine.find_run(RunId(1))->candidates().reach().left_out;
  ASSERT_EQ(left_out.size(), 1U);
  EXPECT_THAT(left_out[0].reason, HasSubstr("4 trainings in a row ended without its update"));
  EXPECT_THAT(left_out[0].reason,
              HasSubstr("asked again from round 12 on, or where a round has too few"));
  reconnect("c", 4, 5);
  pass_round({1, 2});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2})) << "it was asked once more";
  while (round() < 12) pass_round({1, 2});
  pass_round({1, 2, 5});
  pass_round({1, 2});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 5})) << "it has answered";
}

TEST_F(SilentClientTest, OneThatIsLeftOutIsAskedAgainByItselfAndItsAnswerEndsTheRow) {
  leave_c_out();
  while (round() < 12) {
    EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2})) << round();
    pass_round({1, 2});
  }
  for (int i = 0; i < ClientPauses::kTrainingsInARowMax; ++i) {
    EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3})) << round();
    pass_round({1, 2, 3});
  }
  leave_c_out();
}

// Also where it connects again after every deadline that it let pass.
TEST_F(SilentClientTest, ChancesThatAreNotUsedGetRarerWithoutEnd) {
  std::vector<Round> asked_in;
  std::uint64_t session = 3;
  while (round() < 100) {
    const Round current = round();
    if (phase()->task_of("c")) asked_in.push_back(current);
    pass_round({1, 2});
    reconnect("c", session, session == 4 ? 5 : 4);
    session = session == 4 ? 5 : 4;
    RunStart restarted = start_of(1, records);
    restarted.missed.came_back("c");
    EXPECT_EQ(machine.find_run(RunId(1))->start().missed.left_out("c", current + 2),
              restarted.missed.left_out("c", current + 2))
        << "a restart decides alike, round " << current;
  }
  EXPECT_EQ(asked_in, (std::vector<Round>{1, 2, 3, 5, 12, 29, 62}));
}

TEST_F(SilentClientTest, ATaskThatARoundCouldNotDoWithoutMakesNoPauseLonger) {
  leave_c_out();
  lose_b();
  for (int attempt = 0; attempt < 5; ++attempt) {
    EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 3}));
    pass_round({1});
  }
  reconnect("b", 2, 4);
  pass_round({1});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 4}));
  while (round() < 12) pass_round({1, 4});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 3, 4}));
}

TEST_F(SilentClientTest, AnUpdateOfAnotherModelEndsNoRow) {
  const auto answer_falsely = [&] {
    update::ContributionHead other = head(plans.at(2).second);
    other.base.sha256 = sha256(as_bytes("another"));
    hear(3, protocol::UpdateOffer{other});
    ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
    EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, kWrongBase);
    pass_round({1, 2});
  };
  for (int i = 0; i < ClientPauses::kTrainingsInARowMax; ++i) {
    EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3}));
    answer_falsely();
  }
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2}));
  EXPECT_TRUE(start_of(1, records).missed.left_out("c", round())) << "a restart knows";
}

// It is the other runs' states that leave no room, which may end.
TEST_F(SilentClientTest, OneWhoseMemoryOtherRunsHoldIsLeftOutForNow) {
  for (int i = 0; i < ClientPauses::kTrainingsInARowMax; ++i) {
    ASSERT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3}));
    hear(3, protocol::TaskFailed{plans.at(2).second.task, std::string(client::kMemoryInUse), "x"});
    pass_round({1, 2});
  }
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2}));
  EXPECT_FALSE(start_of(1, records).failures.left_out("c"));
  EXPECT_TRUE(start_of(1, records).missed.left_out("c", round())) << "a restart knows";
}

// An operator waits for room rather than losing the run.
TEST_F(SilentClientTest, NoMemoryBesideOtherRunsDoesNotEndARun) {
  leave_c_out();
  lose_b();
  for (int i = 0; i < 3 * context.job.round.attempts_max; ++i) {
    ASSERT_EQ(asked(), (std::set<std::uint64_t>{1, 3})) << i;
    hear(3, protocol::TaskFailed{plans.at(1).second.task, std::string(client::kMemoryInUse), "x"});
    answer(1, plans[0].second);
    ASSERT_EQ(did<AbandonRound>().size(), 1U);
    records.push_back(record(did<AbandonRound>()[0].summary, store::RoundState::kAbandoned));
    const TimePoint began = now;
    for (;;) {
      now = std::min(*machine.find_run(RunId(1))->next_deadline(), now + 5s);
      feed(Tick{});
      if (machine.find_run(RunId(1))->phase()) break;
      for (const std::uint64_t session : {1, 3}) hear(session, protocol::Ping{});
    }
    EXPECT_GE(now - began, std::chrono::seconds(1 << std::min(i, 8))) << "more and more rarely";
    plans = sent<protocol::RoundPlan>();
  }
  EXPECT_EQ(start_of(1, records).attempts.at(round()).failed, 0U) << "a restart knows";
  pass_round({1, 3});
  EXPECT_EQ(records.back().state, store::RoundState::kCommitted);
}

// One client alone does not keep a run from ending that lacks updates for other reasons.
TEST(FailureCodes, MemoryExcusesAnAttemptOnlyWhereItWasDecisive) {
  const std::vector<RoundFailure> failures = {{.client = "a", .code = "memory-in-use"},
                                              {.client = "b", .code = "deadline"}};
  EXPECT_TRUE(lacked_memory(failures, 1, 2));
  EXPECT_FALSE(lacked_memory(failures, 1, 3));
  EXPECT_FALSE(lacked_memory(std::span(failures).subspan(1), 2, 2));
}

class LateClientTest : public RunMachineTest {
 protected:
  // How many deadlines 30 rounds of two clients take while c never brings an update.
  int deadlines(bool offers_late) {
    context.job.job.rounds = 30;
    context.job.round.min_updates = 2;
    context.job.round.wait_for = 3;
    context.job.round.attempts_max = 100;
    submit();
    for (const auto& [name, session] : {std::pair("a", 1), std::pair("b", 2), std::pair("c", 3)}) {
      join(name, static_cast<std::uint64_t>(session));
    }
    int passed = 0;
    for (auto plans = sent<protocol::RoundPlan>(); !plans.empty() && passed < 100;
         plans = sent<protocol::RoundPlan>()) {
      std::optional<protocol::RoundPlan> of_c;
      for (const auto& [session, plan] : plans) {
        if (session == SessionId(3)) {
          of_c = plan;
          continue;
        }
        upload(session.value(), plan);
        feed(UploadSummed{plan.task, 1.0});
      }
      if (!did<CommitRound>().empty()) {
        commit();
        continue;
      }
      ++passed;
      now += context.job.round.deadline - 1s;
      for (const std::uint64_t session : {1, 2, 3}) hear(session, protocol::Ping{});
      now += 1s;
      feed(Tick{});
      if (offers_late && of_c) hear(3, protocol::UpdateOffer{head(*of_c)});
      wait_for_attempt();
    }
    return passed;
  }
};

TEST_F(LateClientTest, OneThatIsSilentHoldsUpFewRounds) { EXPECT_LT(deadlines(false), 10); }
TEST_F(LateClientTest, OneThatOnlyOffersItsUpdatesLateHoldsUpFewMore) {
  EXPECT_LT(deadlines(true), 10);
}

// --- clients that go away -----------------------------------------------------------------------

class FleetingClientTest : public SilentClientTest {
 protected:
  // c is away for longer than the grace where the round asks it, and back before it ends. Returns
  // how long the round took.
  Duration pass_round_without_c() {
    const TimePoint began = now;
    if (!asked().contains(session)) {
      pass_round({1, 2});
      return now - began;
    }
    feed(SessionClosed{SessionId(session)});
    answer(1, plans[0].second);
    answer(2, plans[1].second);
    now += context.job.round.reconnect_grace;
    feed(Tick{});
    records.push_back(record(did<CommitRound>().at(0).summary, store::RoundState::kCommitted));
    EXPECT_EQ(records.back().result.failures.at(0).code, kDisconnected);
    come_back();
    commit();
    plans = sent<protocol::RoundPlan>();
    return now - began;
  }
  void come_back() {
    session = session == 4 ? 5 : 4;
    feed(SessionOpened{SessionId(session), "c"});
    hear(session, protocol::Hello{.rows = 10});
  }
  std::uint64_t session = 3;
};

TEST_F(FleetingClientTest, OneThatGoesAwayInEveryRoundIsAskedLessAndLessOften) {
  std::vector<Round> held_up;
  while (round() < 50) {
    const Round current = round();
    if (pass_round_without_c() > 0s) held_up.push_back(current);
  }
  EXPECT_EQ(held_up, (std::vector<Round>{1, 2, 3, 4, 12, 29})) << "in the fourth it was back";
  EXPECT_TRUE(start_of(1, records).missed.left_out("c", round())) << "a restart knows";
}

TEST_F(FleetingClientTest, OneThatIsBackBeforeTheOthersAreDoneIsAskedOnceMoreToo) {
  for (int i = 1; i <= ClientPauses::kTrainingsInARowMax + 1; ++i) {
    ASSERT_TRUE(asked().contains(session)) << i;
    feed(SessionClosed{SessionId(session)});
    now += context.job.round.reconnect_grace;
    feed(Tick{});
    come_back();
    const auto said = pass_round({1, 2});
    EXPECT_EQ(says(said, "c is left out of this run for now: 4 trainings in a row"), i == 4) << i;
    EXPECT_EQ(records.back().result.failures.size(), 1U);
  }
  EXPECT_FALSE(asked().contains(session));
}

TEST_F(FleetingClientTest, AnHonestOneOnABadLinkTakesPart) {
  for (int i = 0; i < 5; ++i) {
    pass_round_without_c();
    pass_round_without_c();
    ASSERT_TRUE(asked().contains(session)) << round();
    pass_round({1, 2, session});
  }
  EXPECT_TRUE(asked().contains(session));
}

TEST_F(SilentClientTest, WhereARoundCannotDoWithoutThemTheyAreAsked) {
  leave_c_out();
  lose_b();
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 3}));
  pass_round({1, 3});
  EXPECT_EQ(records.back().state, store::RoundState::kCommitted);
}

TEST_F(SilentClientTest, WhoDeliversTooLateButForTheSameRoundIsAskedAgain) {
  for (int i = 1; i < ClientPauses::kTrainingsInARowMax; ++i) pass_round({1, 2});
  const protocol::RoundPlan first = plans.at(2).second;
  pass_round({1});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2})) << "the second attempt";
  hear(3, protocol::UpdateOffer{head(first)});
  EXPECT_EQ(did<LookUpTask>().size(), 1U);
  EXPECT_TRUE(machine.find_run(RunId(1))->candidates().reach().left_out.empty());
  pass_round({1});
  EXPECT_EQ(asked(), (std::set<std::uint64_t>{1, 2, 3}));
}

// --- blame --------------------------------------------------------------------------------------

TEST_F(RunMachineTest, TheCoordinatorsOwnTroubleLeavesNoClientOutAfterARestart) {
  for (const std::string code : {"upload-too-large", "no-directory", "no-room"}) {
    const auto start = start_of(1, {abandoned(1, code), abandoned(2, code), abandoned(3, code)});
    EXPECT_FALSE(start.failures.left_out("a")) << code;
  }
}

TEST_F(RunMachineTest, AClientThatCannotDoATaskIsNotAskedAgainAfterARestart) {
  open_round();
  hear(1, protocol::TaskFailed{plan_a.task, "unknown-strategy", "no such", true});
  const RoundMachine::Task& task = *phase()->find(plan_a.task);
  ASSERT_TRUE(task.failure);
  EXPECT_EQ(task.failure->code(), "permanent-unknown-strategy");
  EXPECT_EQ(task.failure->message(), "no such");
  const auto start = start_of(1, {abandoned(1, task.failure->code())});
  EXPECT_TRUE(start.failures.left_out("a"));
  EXPECT_FALSE(start_of(1, {abandoned(1, "diverged")}).failures.left_out("a"));
}

TEST_F(RunMachineTest, AClientDoesNotUseTheCoordinatorsCodes) {
  for (const std::string code :
       {"deadline", "norm-above-bound", "no-room", "permanent-x", "Not a code"}) {
    CoordinatorMachine another({});
    another.on(ClientAdmitted{"a"}, now);
    another.on(ClientAdmitted{"b"}, now);
    another.on(RunSubmitted{start_of(1)}, now);
    another.on(SessionOpened{SessionId(1), "a"}, now);
    another.on(SessionOpened{SessionId(2), "b"}, now);
    another.on(MessageReceived{SessionId(1), {protocol::Hello{.rows = 10}, {}}}, now);
    actions = another.on(MessageReceived{SessionId(2), {protocol::Hello{.rows = 10}, {}}}, now);
    ASSERT_EQ(sent<protocol::RoundPlan>().size(), 2U);
    const TaskId task = sent<protocol::RoundPlan>()[0].second.task;
    another.on(MessageReceived{SessionId(1), {protocol::TaskFailed{task, code, "x"}, {}}}, now);
    EXPECT_EQ(another.find_run(RunId(1))->phase()->find(task)->failure->code(), "client-error");
  }
}

TEST_F(RunMachineTest, AFailureOfAnUpdateThatCountsIsNoFailure) {
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, 1.0});
  hear(1, protocol::TaskFailed{plan_a.task, "unknown-strategy", "x", true});
  EXPECT_TRUE(did<Say>().empty());
  EXPECT_TRUE(machine.find_run(RunId(1))->candidates().reach().left_out.empty());
}

TEST_F(RunMachineTest, AWeightThatIsLoweredIsSaidOnceATask) {
  context.job.aggregation.weight_max = 5;
  open_round();
  EXPECT_EQ(offer(plan_a, 10), "a: its weight 10 is lowered to 5");
  for (std::uint64_t session = 3; session < 6; ++session) {
    feed(SessionClosed{SessionId(session == 3 ? 1 : session - 1)});
    feed(SessionOpened{SessionId(session), "a"});
    hear(session, protocol::Hello{.rows = 10});
    update::ContributionHead claims = head(plan_a);
    claims.weight = session % 2 == 1 ? 4 : 9;
    hear(session, protocol::UpdateOffer{claims});
    EXPECT_EQ(did<OpenUpload>().size(), 1U);
    EXPECT_TRUE(did<Say>().empty());
  }
}

// It would train a whole round instead.
TEST_F(RunMachineTest, AnOldDeviceThatHasNotGreetedYetEvaluatesNothing) {
  const ClientTable::Client old{.seen = true, .greeting = {.rows = 10}};
  EXPECT_EQ(why_unfit(old, {}, {}, protocol::TaskKind::kTrain), "");
  EXPECT_EQ(why_unfit(old, {}, {}, protocol::TaskKind::kEvaluate), "it holds no rows out");
}

}  // namespace
}  // namespace starling::coordinator

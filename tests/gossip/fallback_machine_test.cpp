// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/fallback_machine.h"

#include <gtest/gtest.h>

#include "core/base/durable_file.h"
#include "core/base/settings.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using namespace fallback;
using namespace std::chrono_literals;
using State = FallbackMachine::State;

constexpr TimePoint kStart{};

SharedBytes model_of(float value) {
  Bytes bytes(2 * sizeof(float));
  auto* floats = reinterpret_cast<float*>(bytes.data());
  floats[0] = floats[1] = value;
  return SharedBytes::own(std::move(bytes));
}

float value_of(const SharedBytes& model) {
  return *reinterpret_cast<const float*>(model.view().data());
}

class FallbackMachineTest : public ::testing::Test {
 public:
  // What was asked for: "begin 3", "pause", "merge 7".
  std::string on(Event event, Duration at) {
    std::string done;
    for (const Action& action : machine.on(std::move(event), kStart + at)) {
      if (const auto* begin = std::get_if<Begin>(&action)) {
        done += "begin " + std::to_string(static_cast<int>(value_of(begin->from.model)));
        from_exchange = begin->from.exchanges;
        skipped = begin->steps_before;
        pace = begin->pace;
      } else if (std::holds_alternative<Pause>(action)) {
        done += "pause";
      } else if (const auto* merge = std::get_if<Merge>(&action)) {
        done += "merge " + std::to_string(static_cast<int>(value_of(merge->trained.model)));
      } else if (const auto* keep = std::get_if<Keep>(&action)) {
        kept = keep->kept;
      } else if (std::holds_alternative<Forget>(action)) {
        kept.reset();
      } else if (std::holds_alternative<ReadProgress>(action)) {
        ++looks;
      } else if (const auto* say = std::get_if<Say>(&action)) {
        lines += say->line;
      }
    }
    return done;
  }
  std::string ask(std::uint64_t task, Round base, float value, Duration at, std::uint64_t run = 1) {
    return on(TaskOffered{.task = TaskId(task),
                          .base = {RunId(run), base, {}, run_key},
                          .model = model_of(value),
                          .rounds = 100,
                          .steps = 10},
              at);
  }
  std::string paused(float value, Duration at, std::uint64_t exchanges = 5) {
    return on(Paused{Trained{model_of(value), exchanges, 2 * exchanges, 0.5}}, at);
  }
  void connect_with_model() {
    on(CoordinatorConnected{}, 0s);
    on(TermsChanged{terms}, 0s);
    ask(50, 2, 2, 0s);
    ask(1, 3, 3, 1s);
  }
  // CoordinatorLost at 2 s, gossiping from 32 s on.
  void gossip() {
    connect_with_model();
    on(CoordinatorLost{}, 2s);
    ASSERT_EQ(on(Tick{}, 32s), "begin 3");
  }

  // By a gossip that goes on.
  std::string progress(float value, Duration at, std::uint64_t made) {
    return on(Progress{Trained{model_of(value), made, 2 * made, 0.5}}, at);
  }
  // Another process, with what was kept so long before.
  void restart(Duration at, Duration since) {
    machine = FallbackMachine(kStart + at);
    if (kept) on(Restored{Kept(*kept), since}, at);
    on(TermsChanged{terms}, at);
  }

  FallbackTerms terms{.run = 1, .after = 30s, .merge_within = 60s, .classes = 2};
  FallbackMachine machine{kStart};
  std::uint64_t skipped = 0;
  std::uint64_t from_exchange = 0;  // that the gossip begins with
  FallbackPace pace;
  std::optional<Kept> kept;
  std::uint32_t run_key = 77;
  int looks = 0;
  std::string lines;
};

TEST_F(FallbackMachineTest, BeginsOnceTheCoordinatorIsGoneForTheStatedTime) {
  connect_with_model();
  EXPECT_EQ(machine.next_deadline(), std::nullopt) << "it is there";
  EXPECT_EQ(on(CoordinatorLost{}, 2s), "");
  EXPECT_EQ(machine.next_deadline(), kStart + 32s);
  EXPECT_EQ(on(CoordinatorLost{}, 20s), "") << "a second word of the same absence";
  EXPECT_EQ(on(Tick{}, 31s), "");
  EXPECT_EQ(on(Tick{}, 32s), "begin 3");
  EXPECT_EQ(machine.next_deadline(), kStart + 62s) << "to keep what is trained";
  EXPECT_EQ(on(Tick{}, 99s), "");
}

TEST_F(FallbackMachineTest, AReturnInTimeChangesNothing) {
  connect_with_model();
  on(CoordinatorLost{}, 2s);
  EXPECT_EQ(on(CoordinatorConnected{}, 31s), "");
  EXPECT_EQ(on(Tick{}, 32s), "");
  on(CoordinatorLost{}, 40s);
  EXPECT_EQ(on(Tick{}, 69s), "");
  EXPECT_EQ(on(Tick{}, 70s), "begin 3") << "the time counts anew";
}

TEST_F(FallbackMachineTest, WithoutARosterOrAModelItWaits) {
  on(CoordinatorConnected{}, 0s);
  on(CoordinatorLost{}, 1s);
  EXPECT_EQ(on(Tick{}, 99s), "");
  on(TermsChanged{terms}, 100s);
  EXPECT_EQ(on(Tick{}, 200s), "")
      << "a device that took part in no round has nothing to go on with";
  machine = FallbackMachine(kStart);
  on(CoordinatorConnected{}, 0s);
  ask(50, 2, 2, 0s);
  ask(1, 3, 3, 1s);
  on(CoordinatorLost{}, 2s);
  EXPECT_EQ(on(Tick{}, 99s), "") << "no roster";
  on(TermsChanged{terms}, 99s);
  EXPECT_EQ(on(Tick{}, 99s), "begin 3");
}

TEST_F(FallbackMachineTest, TheReturnEndsItAndTheNextRoundMergesItOnce) {
  gossip();
  EXPECT_EQ(on(CoordinatorConnected{}, 100s), "pause");
  EXPECT_EQ(machine.state(), State::kConnected);
  paused(8, 100s);
  EXPECT_EQ(ask(2, 4, 4, 101s), "merge 8");
  EXPECT_EQ(ask(3, 4, 4, 102s), "merge 8") << "a later attempt from the same base";
  on(TaskSettled{TaskId(3), true}, 103s);
  EXPECT_FALSE(machine.holds_contribution());
  EXPECT_EQ(ask(4, 5, 5, 104s), "");
}

TEST_F(FallbackMachineTest, ATaskThatDidNotCountLeavesItForTheNextRound) {
  gossip();
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  EXPECT_EQ(ask(2, 4, 4, 101s), "merge 8");
  on(TaskSettled{TaskId(99), true}, 102s);
  on(TaskSettled{TaskId(2), false}, 102s);
  EXPECT_EQ(ask(3, 5, 5, 103s), "merge 8");
}

TEST_F(FallbackMachineTest, WhereNobodyKnowsWhetherItCountedItIsNotMergedAgain) {
  gossip();
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  EXPECT_EQ(ask(2, 4, 4, 101s), "merge 8");
  lines.clear();
  EXPECT_EQ(ask(3, 5, 5, 103s), "");
  EXPECT_EQ(lines,
            "what was trained by gossip is dropped: it was offered to an earlier round, which may "
            "have counted it");
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, WhatNoRoundAsksForInTimeIsDropped) {
  gossip();
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  EXPECT_EQ(ask(2, 40, 4, 161s), "");
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, OnlyARoundOfItsRunAndSizeTakesIt) {
  gossip();
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  EXPECT_EQ(ask(2, 1, 4, 101s, 2), "");
  EXPECT_TRUE(machine.holds_contribution());
  EXPECT_EQ(on(TaskOffered{TaskId(3), {RunId(1), 4, {}}, SharedBytes::own(Bytes(4))}, 102s), "");
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, LostAgainBeforeTheMergeItGoesOnFromWhatItHad) {
  gossip();
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  on(CoordinatorLost{}, 101s);
  EXPECT_EQ(on(Tick{}, 131s), "begin 8");
  EXPECT_EQ(skipped, 10U) << "other batches than the first time";
  EXPECT_EQ(on(CoordinatorConnected{}, 140s), "pause");
  paused(9, 140s);
  EXPECT_EQ(ask(2, 4, 4, 141s), "merge 9");
}

TEST_F(FallbackMachineTest, AnAbsenceWithoutAnExchangeIsForgotten) {
  gossip();
  on(CoordinatorConnected{}, 33s);
  paused(8, 33s, 0);
  EXPECT_EQ(ask(2, 4, 4, 34s), "");
  on(Paused{}, 34s);
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, ARosterThatEndsEndsItAndKeepsWhatWasTrained) {
  gossip();
  EXPECT_EQ(on(TermsChanged{terms}, 40s), "") << "renewed";
  EXPECT_EQ(on(TermsChanged{}, 50s), "pause");
  EXPECT_EQ(machine.state(), State::kAway);
  paused(8, 50s);
  EXPECT_EQ(on(Tick{}, 60s), "");
  EXPECT_EQ(on(CoordinatorConnected{}, 61s), "");
  on(TermsChanged{terms}, 61s);
  EXPECT_EQ(ask(2, 4, 4, 62s), "merge 8");
}

// The time in which a round has to ask counts from the coordinator's return, not from there.
TEST_F(FallbackMachineTest, ARosterThatEndedLongBeforeTheReturnLosesNothing) {
  gossip();
  EXPECT_EQ(on(TermsChanged{}, 50s), "pause");
  paused(8, 50s);
  on(CoordinatorConnected{}, 500s);
  on(TermsChanged{terms}, 500s);
  on(CoordinatorLost{}, 520s);
  on(CoordinatorConnected{}, 530s);
  EXPECT_EQ(ask(2, 4, 4, 559s), "merge 8");
  on(TaskSettled{TaskId(2), false}, 560s);
  EXPECT_EQ(ask(3, 4, 4, 561s), "") << "a minute after the first return";
}

TEST_F(FallbackMachineTest, AnotherRunsRosterEndsItForGood) {
  gossip();
  FallbackTerms other = terms;
  other.run = 2;
  EXPECT_EQ(on(TermsChanged{other}, 50s), "pause");
  paused(8, 50s);
  EXPECT_FALSE(machine.holds_contribution());
  EXPECT_EQ(on(Tick{}, 99s), "") << "of run 2 it has no model";
}

// A client works for several runs; the roster is of one.
TEST_F(FallbackMachineTest, OtherActiveRunsLeaveNeitherTheirModelNorTheirPace) {
  connect_with_model();
  EXPECT_EQ(ask(80, 6, 60, 1500ms, 2), "");
  EXPECT_EQ(ask(81, 7, 70, 1600ms, 2), "");
  on(CoordinatorLost{}, 2s);
  ASSERT_EQ(on(Tick{}, 32s), "begin 3");
  EXPECT_EQ(pace.per_round, 1s);
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  EXPECT_EQ(ask(82, 8, 80, 101s, 2), "");
  EXPECT_EQ(kept->run, 1U);
  EXPECT_EQ(ask(2, 4, 4, 102s), "merge 8");
  on(TaskSettled{TaskId(2), false}, 103s);
  EXPECT_EQ(kept->rounds, 100U);
}

TEST_F(FallbackMachineTest, AModelOfBeforeTheRosterOfAnotherRunIsNotUsed) {
  on(CoordinatorConnected{}, 0s);
  ask(80, 6, 60, 0s, 2);
  on(TermsChanged{terms}, 1s);
  ask(81, 7, 70, 2s, 2);
  on(CoordinatorLost{}, 3s);
  EXPECT_EQ(on(Tick{}, 99s), "");
}

// Rounds of 10 s, one of them slow, and two that passed without asking this device.
TEST_F(FallbackMachineTest, ThePaceIsThatOfTheRunsRounds) {
  on(CoordinatorConnected{}, 0s);
  on(TermsChanged{terms}, 0s);
  ask(1, 3, 3, 1s);
  ask(2, 4, 4, 11s);
  ask(3, 4, 4, 14s);  // another attempt of the same round
  ask(4, 5, 5, 61s);
  ask(5, 8, 8, 91s);
  on(CoordinatorLost{}, 100s);
  ASSERT_EQ(on(Tick{}, 130s), "begin 8");
  EXPECT_EQ(pace.per_round, 10s);
  EXPECT_EQ(pace.due(1), kStart + 101s) << "ten steps a round, since the loss";
  EXPECT_EQ(pace.due(30), kStart + 130s);
  EXPECT_EQ(pace.round_at(0), 9U);
  EXPECT_EQ(pace.round_at(19), 10U);
  EXPECT_EQ(pace.due(920), kStart + 1020s);
  EXPECT_EQ(pace.due(921), std::nullopt) << "the run has 92 rounds more";
  EXPECT_EQ(pace.round_at(2000), 100U);
}

TEST_F(FallbackMachineTest, AnAbsenceIsNoRoundAndWithoutAPaceNothingIsTrained) {
  on(CoordinatorConnected{}, 0s);
  on(TermsChanged{terms}, 0s);
  ask(1, 3, 3, 1s);
  on(CoordinatorLost{}, 2s);
  EXPECT_EQ(on(Tick{}, 99s), "") << "nobody knows how long a round takes";
  on(CoordinatorConnected{}, 1000s);
  ask(2, 4, 4, 1001s);
  on(CoordinatorLost{}, 1002s);
  EXPECT_EQ(on(Tick{}, 1032s), "");
  on(CoordinatorConnected{}, 2000s);
  ask(3, 5, 5, 2001s);
  on(TaskSettled{TaskId(3), true}, 2005s);
  on(CoordinatorLost{}, 2010s);
  EXPECT_EQ(on(Tick{}, 2040s), "begin 5");
  EXPECT_EQ(pace.per_round, 4s) << "its commit told";
}

TEST_F(FallbackMachineTest, NoStepIsAllowedTwice) {
  gossip();
  EXPECT_EQ(pace.due(20), kStart + 4s);
  on(TermsChanged{}, 50s);
  paused(8, 50s, 10);  // 20 steps
  on(TermsChanged{terms}, 60s);
  ASSERT_EQ(on(Tick{}, 60s), "begin 8") << "in the same absence";
  EXPECT_EQ(pace.due(10), kStart + 5s) << "what was trained counts";
  EXPECT_EQ(pace.round_at(0), 6U);
  on(CoordinatorConnected{}, 70s);
  paused(9, 70s, 5);
  on(CoordinatorLost{}, 100s);
  ASSERT_EQ(on(Tick{}, 130s), "begin 9") << "before it was merged";
  EXPECT_EQ(pace.due(10), kStart + 101s) << "another absence has a time of its own";
  EXPECT_EQ(pace.round_at(0), 7U) << "behind the thirty steps before";
  EXPECT_EQ(pace.due(941), std::nullopt);
}

TEST_F(FallbackMachineTest, ARestartInTheMiddleGoesOnWithTheModelAndItsBudget) {
  gossip();
  ASSERT_TRUE(kept);
  EXPECT_EQ(on(Tick{}, 62s), "");
  EXPECT_EQ(looks, 1);
  progress(7, 62s, 20);
  ASSERT_EQ(machine.next_deadline(), kStart + 92s) << "the next look";
  restart(80s, 18s);
  EXPECT_EQ(on(Tick{}, 109s), "") << "the coordinator may answer";
  ASSERT_EQ(on(Tick{}, 110s), "begin 7");
  EXPECT_EQ(from_exchange, 20U);
  EXPECT_EQ(skipped, 0U) << "those exchanges stand for their batches";
  EXPECT_EQ(pace.due(40), kStart + 6s) << "what was trained, since the loss that the former saw";
  EXPECT_EQ(pace.due(971), std::nullopt);
  on(CoordinatorConnected{}, 120s);
  paused(9, 120s, 30);
  restart(130s, 10s);
  on(CoordinatorConnected{}, 131s);
  EXPECT_EQ(ask(2, 4, 4, 132s), "merge 9");
  on(TaskSettled{TaskId(2), true}, 133s);
  EXPECT_FALSE(kept) << "it counted";
}

// Whoever trains as much as it may and restarts every 45 s has trained what one process may.
TEST_F(FallbackMachineTest, RestartsGiveNobodyMoreSteps) {
  gossip();
  std::uint64_t made = 0;
  for (Duration at = 50s; at < 200s; at += 45s) {
    while (pace.due(2 * (made + 1)).value_or(TimePoint::max()) <= kStart + at) ++made;
    EXPECT_EQ(2 * made, std::min<std::uint64_t>(970, static_cast<std::uint64_t>(at / 1s - 2) * 10));
    progress(7, at, made);
    restart(at + 5s, 5s);
    ASSERT_EQ(on(Tick{}, at + 35s), "begin 7");
    ASSERT_EQ(from_exchange, made);
  }
  EXPECT_EQ(pace.due(2 * (made + 1)), std::nullopt) << "the run's last round";
}

TEST_F(FallbackMachineTest, AClockThatWasSetBackGivesNoTimeToTrainIn) {
  gossip();
  progress(7, 62s, 20);
  restart(1000s, 0s);  // as if no time had passed
  ASSERT_EQ(on(Tick{}, 1030s), "begin 7");
  EXPECT_EQ(pace.from, kStart + 940s) << "60 s, as when it was kept";
}

TEST_F(FallbackMachineTest, AReturnRightAfterARestartMergesWhatWasTrainedBefore) {
  gossip();
  progress(7, 62s, 20);
  restart(80s, 18s);
  EXPECT_EQ(on(CoordinatorConnected{}, 81s), "");
  EXPECT_EQ(ask(2, 4, 4, 82s), "merge 7");
  restart(90s, 8s);
  on(CoordinatorConnected{}, 91s);
  EXPECT_EQ(ask(3, 4, 4, 92s), "merge 7") << "the same base asks again";
  restart(95s, 3s);
  on(CoordinatorConnected{}, 96s);
  EXPECT_EQ(ask(4, 5, 5, 97s), "") << "it may have counted";
  EXPECT_FALSE(kept);
}

TEST_F(FallbackMachineTest, ARestartDoesNotGiveRoundsMoreTimeToAsk) {
  gossip();
  on(CoordinatorConnected{}, 100s);
  paused(8, 100s);
  restart(150s, 50s);
  on(CoordinatorConnected{}, 151s);
  EXPECT_EQ(ask(2, 4, 4, 161s), "");
}

// After a restore, the coordinator gave the run's number to another one.
TEST_F(FallbackMachineTest, WhatWasTrainedForAnotherRunOfTheNumberIsDropped) {
  for (const bool restarts : {false, true}) {
    machine = FallbackMachine(kStart);
    run_key = 77;
    gossip();
    on(CoordinatorConnected{}, 100s);
    paused(8, 100s);
    if (restarts) restart(101s, 1s);
    if (restarts) on(CoordinatorConnected{}, 101s);
    run_key = 78;
    EXPECT_EQ(ask(2, 4, 4, 102s), "") << restarts;
    EXPECT_FALSE(machine.holds_contribution());
    EXPECT_FALSE(kept);
  }
}

TEST_F(FallbackMachineTest, AnotherRunForgetsWhatWasKept) {
  gossip();
  progress(7, 62s, 20);
  terms.run = 2;
  restart(80s, 18s);
  EXPECT_FALSE(kept);
  EXPECT_EQ(on(Tick{}, 200s), "");
}

TEST(KeptFallback, IsReadAsItWasWritten) {
  const starling::testing::TemporaryDirectory directory;
  const auto path = directory.path() / "fallback";
  EXPECT_FALSE(load_fallback(path).value());
  const Kept kept{.run = 7,
                  .run_key = ~0U,
                  .round = 3,
                  .rounds = 100,
                  .steps_in_round = 10,
                  .per_round = 1234567us,
                  .earlier = 5,
                  .spent = 4,
                  .steps = 6,
                  .away = 89s,
                  .ended = true,
                  .returned = 2s,
                  .task = 1ULL << 63,
                  .base = 4,
                  .base_digest = Sha256Digest().hex(),
                  .trained = {model_of(2.5F), 20, 40, 0.1}};
  ASSERT_TRUE(save_fallback(path, kept, WallTime(5ms)));
  const auto loaded = load_fallback(path);
  ASSERT_TRUE(loaded && *loaded);
  const Kept& read = (*loaded)->kept;
  EXPECT_EQ((*loaded)->at, WallTime(5ms));
  EXPECT_EQ(to_settings("", read), to_settings("", kept));
  EXPECT_EQ(value_of(read.trained.model), 2.5F);
  EXPECT_EQ(read.trained.model.size(), kept.trained.model.size());
  Bytes bytes = *read_file(path, 1 << 20);
  for (std::size_t i = 0; i < bytes.size(); i += 23) {
    Bytes other = bytes;
    other[i] ^= std::byte{1};
    ASSERT_TRUE(write_durably(path, other));
    EXPECT_EQ(load_fallback(path).error().code(), "fallback-damaged") << i;
  }
}

TEST(FallbackTerms, TravelAsSettings) {
  const FallbackTerms terms{.run = 7, .after = 1500ms, .merge_within = 60s, .classes = 10};
  Settings settings = fallback_settings(terms);
  EXPECT_TRUE(is_fallback(settings));
  settings.emplace_back("train.learning-rate", "0.1");
  EXPECT_EQ(read_fallback(settings).value(), terms);
  EXPECT_FALSE(is_fallback({{"fallbacks.run", "1"}}));
  EXPECT_EQ(read_fallback({{"train.learning-rate", "0.1"}}).value(), std::nullopt);
  EXPECT_EQ(read_fallback({{"fallback.afterwards", "1"}}).error().code(), "unknown-setting");
}

}  // namespace
}  // namespace starling::gossip

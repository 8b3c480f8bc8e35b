// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/fallback_machine.h"

#include <gtest/gtest.h>

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
  // What was asked for: "begin 3", "rest", "merge 7"; lines are left out.
  std::string on(Event event, Duration at) {
    std::string done;
    for (const Action& action : machine.on(std::move(event), kStart + at)) {
      if (const auto* begin = std::get_if<Begin>(&action)) {
        done += "begin " + std::to_string(static_cast<int>(value_of(begin->model)));
        skipped = begin->steps_before;
        pace = begin->pace;
      } else if (std::holds_alternative<Rest>(action)) {
        done += "rest";
      } else if (const auto* merge = std::get_if<Merge>(&action)) {
        done += "merge " + std::to_string(static_cast<int>(value_of(merge->trained.model)));
      }
    }
    return done;
  }
  std::string ask(std::uint64_t task, Round base, float value, Duration at, std::uint64_t run = 1) {
    return on(Asked{.task = TaskId(task),
                    .base = {RunId(run), base, {}},
                    .model = model_of(value),
                    .rounds = 100,
                    .steps = 10},
              at);
  }
  std::string rested(float value, Duration at, std::uint64_t exchanges = 5) {
    return on(Rested{Trained{model_of(value), exchanges, 2 * exchanges, 0.5}}, at);
  }
  void connect_with_model() {
    on(Heard{}, 0s);
    on(Told{terms}, 0s);
    ask(50, 2, 2, 0s);
    ask(1, 3, 3, 1s);
  }
  // Lost at 2 s, gossiping from 32 s on.
  void gossip() {
    connect_with_model();
    on(Lost{}, 2s);
    ASSERT_EQ(on(Tick{}, 32s), "begin 3");
  }

  FallbackTerms terms{.run = 1, .after = 30s, .merge_within = 60s, .classes = 2};
  FallbackMachine machine{kStart};
  std::uint64_t skipped = 0;
  FallbackPace pace;
};

TEST_F(FallbackMachineTest, BeginsOnceTheCoordinatorIsGoneForTheStatedTime) {
  connect_with_model();
  EXPECT_EQ(machine.next_deadline(), std::nullopt) << "it is there";
  EXPECT_EQ(on(Lost{}, 2s), "");
  EXPECT_EQ(machine.next_deadline(), kStart + 32s);
  EXPECT_EQ(on(Lost{}, 20s), "") << "a second word of the same absence";
  EXPECT_EQ(on(Tick{}, 31s), "");
  EXPECT_EQ(on(Tick{}, 32s), "begin 3");
  EXPECT_EQ(machine.next_deadline(), std::nullopt);
  EXPECT_EQ(on(Tick{}, 99s), "");
}

TEST_F(FallbackMachineTest, AReturnInTimeChangesNothing) {
  connect_with_model();
  on(Lost{}, 2s);
  EXPECT_EQ(on(Heard{}, 31s), "");
  EXPECT_EQ(on(Tick{}, 32s), "");
  on(Lost{}, 40s);
  EXPECT_EQ(on(Tick{}, 69s), "");
  EXPECT_EQ(on(Tick{}, 70s), "begin 3") << "the time counts anew";
}

TEST_F(FallbackMachineTest, WithoutARosterOrAModelItWaits) {
  on(Heard{}, 0s);
  on(Lost{}, 1s);
  EXPECT_EQ(on(Tick{}, 99s), "");
  on(Told{terms}, 100s);
  EXPECT_EQ(on(Tick{}, 200s), "")
      << "a device that took part in no round has nothing to go on with";
  machine = FallbackMachine(kStart);
  on(Heard{}, 0s);
  ask(50, 2, 2, 0s);
  ask(1, 3, 3, 1s);
  on(Lost{}, 2s);
  EXPECT_EQ(on(Tick{}, 99s), "") << "no roster";
  on(Told{terms}, 99s);
  EXPECT_EQ(on(Tick{}, 99s), "begin 3");
}

TEST_F(FallbackMachineTest, TheReturnEndsItAndTheNextRoundMergesItOnce) {
  gossip();
  EXPECT_EQ(on(Heard{}, 100s), "rest");
  EXPECT_EQ(machine.state(), State::kConnected);
  rested(8, 100s);
  EXPECT_EQ(ask(2, 4, 4, 101s), "merge 8");
  EXPECT_EQ(ask(3, 4, 4, 102s), "merge 8") << "a later attempt from the same base";
  on(Settled{TaskId(3), true}, 103s);
  EXPECT_FALSE(machine.holds_contribution());
  EXPECT_EQ(ask(4, 5, 5, 104s), "");
}

TEST_F(FallbackMachineTest, ATaskThatDidNotCountLeavesItForTheNextRound) {
  gossip();
  on(Heard{}, 100s);
  rested(8, 100s);
  EXPECT_EQ(ask(2, 4, 4, 101s), "merge 8");
  on(Settled{TaskId(99), true}, 102s);
  on(Settled{TaskId(2), false}, 102s);
  EXPECT_EQ(ask(3, 5, 5, 103s), "merge 8");
}

TEST_F(FallbackMachineTest, WhereNobodyKnowsWhetherItCountedItIsNotMergedAgain) {
  gossip();
  on(Heard{}, 100s);
  rested(8, 100s);
  EXPECT_EQ(ask(2, 4, 4, 101s), "merge 8");
  EXPECT_EQ(ask(3, 5, 5, 103s), "");
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, WhatNoRoundAsksForInTimeIsDropped) {
  gossip();
  on(Heard{}, 100s);
  rested(8, 100s);
  EXPECT_EQ(ask(2, 40, 4, 161s), "");
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, OnlyARoundOfItsRunAndSizeTakesIt) {
  gossip();
  on(Heard{}, 100s);
  rested(8, 100s);
  EXPECT_EQ(ask(2, 1, 4, 101s, 2), "");
  EXPECT_TRUE(machine.holds_contribution());
  EXPECT_EQ(on(Asked{TaskId(3), {RunId(1), 4, {}}, SharedBytes::own(Bytes(4))}, 102s), "");
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, LostAgainBeforeTheMergeItGoesOnFromWhatItHad) {
  gossip();
  on(Heard{}, 100s);
  rested(8, 100s);
  on(Lost{}, 101s);
  EXPECT_EQ(on(Tick{}, 131s), "begin 8");
  EXPECT_EQ(skipped, 10U) << "other batches than the first time";
  EXPECT_EQ(on(Heard{}, 140s), "rest");
  rested(9, 140s);
  EXPECT_EQ(ask(2, 4, 4, 141s), "merge 9");
}

TEST_F(FallbackMachineTest, AnAbsenceWithoutAnExchangeIsForgotten) {
  gossip();
  on(Heard{}, 33s);
  rested(8, 33s, 0);
  EXPECT_EQ(ask(2, 4, 4, 34s), "");
  on(Rested{}, 34s);
  EXPECT_FALSE(machine.holds_contribution());
}

TEST_F(FallbackMachineTest, ARosterThatEndsEndsItAndKeepsWhatWasTrained) {
  gossip();
  EXPECT_EQ(on(Told{terms}, 40s), "") << "renewed";
  EXPECT_EQ(on(Told{}, 50s), "rest");
  EXPECT_EQ(machine.state(), State::kAway);
  rested(8, 50s);
  EXPECT_EQ(on(Tick{}, 60s), "");
  EXPECT_EQ(on(Heard{}, 61s), "");
  on(Told{terms}, 61s);
  EXPECT_EQ(ask(2, 4, 4, 62s), "merge 8");
}

// The time in which a round has to ask counts from the coordinator's return, not from there.
TEST_F(FallbackMachineTest, ARosterThatEndedLongBeforeTheReturnLosesNothing) {
  gossip();
  EXPECT_EQ(on(Told{}, 50s), "rest");
  rested(8, 50s);
  on(Heard{}, 500s);
  on(Told{terms}, 500s);
  on(Lost{}, 520s);
  on(Heard{}, 530s);
  EXPECT_EQ(ask(2, 4, 4, 559s), "merge 8");
  on(Settled{TaskId(2), false}, 560s);
  EXPECT_EQ(ask(3, 4, 4, 561s), "") << "a minute after the first return";
}

TEST_F(FallbackMachineTest, AnotherRunsRosterEndsItForGood) {
  gossip();
  FallbackTerms other = terms;
  other.run = 2;
  EXPECT_EQ(on(Told{other}, 50s), "rest");
  rested(8, 50s);
  EXPECT_FALSE(machine.holds_contribution());
  EXPECT_EQ(on(Tick{}, 99s), "") << "of run 2 it has no model";
}

// Rounds of 10 s, one of them slow, and two that passed without asking this device.
TEST_F(FallbackMachineTest, ThePaceIsThatOfTheRunsRounds) {
  on(Heard{}, 0s);
  on(Told{terms}, 0s);
  ask(1, 3, 3, 1s);
  ask(2, 4, 4, 11s);
  ask(3, 4, 4, 14s);  // another attempt of the same round
  ask(4, 5, 5, 61s);
  ask(5, 8, 8, 91s);
  on(Lost{}, 100s);
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
  on(Heard{}, 0s);
  on(Told{terms}, 0s);
  ask(1, 3, 3, 1s);
  on(Lost{}, 2s);
  EXPECT_EQ(on(Tick{}, 99s), "") << "nobody knows how long a round takes";
  on(Heard{}, 1000s);
  ask(2, 4, 4, 1001s);
  on(Lost{}, 1002s);
  EXPECT_EQ(on(Tick{}, 1032s), "");
  on(Heard{}, 2000s);
  ask(3, 5, 5, 2001s);
  on(Settled{TaskId(3), true}, 2005s);
  on(Lost{}, 2010s);
  EXPECT_EQ(on(Tick{}, 2040s), "begin 5");
  EXPECT_EQ(pace.per_round, 4s) << "its commit told";
}

TEST_F(FallbackMachineTest, NoStepIsAllowedTwice) {
  gossip();
  EXPECT_EQ(pace.due(20), kStart + 4s);
  on(Told{}, 50s);
  rested(8, 50s, 10);  // 20 steps
  on(Told{terms}, 60s);
  ASSERT_EQ(on(Tick{}, 60s), "begin 8") << "in the same absence";
  EXPECT_EQ(pace.due(10), kStart + 5s) << "what was trained counts";
  EXPECT_EQ(pace.round_at(0), 6U);
  on(Heard{}, 70s);
  rested(9, 70s, 5);
  on(Lost{}, 100s);
  ASSERT_EQ(on(Tick{}, 130s), "begin 9") << "before it was merged";
  EXPECT_EQ(pace.due(10), kStart + 101s) << "another absence has a time of its own";
  EXPECT_EQ(pace.round_at(0), 7U) << "behind the thirty steps before";
  EXPECT_EQ(pace.due(941), std::nullopt);
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

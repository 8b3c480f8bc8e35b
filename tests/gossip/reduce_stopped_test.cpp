// SPDX-License-Identifier: Apache-2.0
// A member whose process does not run for a while: what others sent meanwhile waits to be read.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using testing::at;
using testing::note;
using testing::sent_notes;

// Member `self` of as many as have links to it, in exchange 0.
AllReduceMachine begun(Member self, std::size_t members) {
  const AllReduceOptions ring{.shape = {.choice = ShapeRule::Choice::kRing}};
  AllReduceMachine machine(ring, 1, self, testing::member_names(members));
  for (Member m = 0; m < members; ++m) {
    if (m != self) (void)machine.on(LinkUp{m, {}}, TimePoint{});
  }
  (void)machine.on(Begin{at(0), share({1, 2, 3, 4, 5, 6, 7, 8})}, TimePoint{});
  return machine;
}

TEST(AStoppedMember, ReadsRegistrationsBeforeItClosesItsList) {
  AllReduceMachine gatherer = begun(0, 5);
  TimePoint now{};
  for (const Member m : {1U, 2U}) (void)gatherer.on(note(m, reduce::Register{}, 0, 1), now);
  now += 60s;
  EXPECT_TRUE(sent_notes<reduce::List>(gatherer.on(Tick{}, now)).empty());
  (void)gatherer.on(note(3, reduce::Register{}, 0, 1), now);
  const auto lists =
      sent_notes<reduce::List>(gatherer.on(note(4, reduce::Register{}, 0, 1), now), 1);
  ASSERT_EQ(lists.size(), 1U);
  EXPECT_EQ(lists[0].members, (Members{0, 1, 2, 3, 4}));
}

TEST(AStoppedMember, ReadsWhatItsListSaysBeforeItGivesUp) {
  AllReduceMachine gatherer = begun(0, 3);
  TimePoint now{};
  for (const Member m : {1U, 2U}) (void)gatherer.on(note(m, reduce::Register{}, 0, 1), now);
  now += 200s;
  for (const Action& action : gatherer.on(Tick{}, now)) {
    const auto* const sent = std::get_if<SendNote>(&action);
    EXPECT_TRUE(sent == nullptr || sent->note.attempt <= 1) << "another attempt begins";
  }
  EXPECT_FALSE(gatherer.is_silent(1));
  EXPECT_FALSE(gatherer.is_silent(2));
}

// A question of the attempt at hand is no sign that the gatherer gets on.
TEST(AStoppedMember, WaitsNoLongerWhereItIsAsked) {
  AllReduceMachine member = begun(2, 4);
  TimePoint now{};
  while (member.waiting_for() == 0 && now < TimePoint{} + 60s) {
    now = std::max(now, *member.next_deadline() + 600ms);
    (void)member.on(Tick{}, now);
    (void)member.on(note(3, reduce::Ask{}, 0, 1), now);
  }
  EXPECT_NE(member.waiting_for(), 0);
}

// The others are there, but nothing comes of it.
TEST(AStoppedMember, LeavesAnAttemptAlsoWhenItIsAlwaysLate) {
  for (const Duration late : {Duration{}, Duration(400ms), Duration(600ms), Duration(2s)}) {
    AllReduceMachine member = begun(1, 4);
    TimePoint now{};
    (void)member.on(note(0, reduce::List{{0, 1, 2, 3}}, 0, 1), now);
    bool has_left = false;
    while (!has_left && now < TimePoint{} + 60s) {
      now = std::max(now, *member.next_deadline() + late);
      for (const auto& ask : sent_notes<reduce::Ask>(member.on(Tick{}, now))) {  // it gathers
        has_left = has_left || ask.attempt > 1;
      }
      for (const Member m : {0U, 2U, 3U}) (void)member.on(note(m, reduce::Wait{}, 0, 0), now);
    }
    EXPECT_TRUE(has_left) << format_duration(late);
  }
}

TEST(AStoppedMember, AsksOnceBeforeItCallsOthersSilent) {
  AllReduceMachine member = begun(1, 4);
  TimePoint now = TimePoint{} + 60s;
  std::size_t questions = 0;
  while (!member.is_silent(2) && now < TimePoint{} + 120s) {
    questions += sent_notes<reduce::AskProgress>(member.on(Tick{}, now), 2).size();
    now = std::max(now, *member.next_deadline());
  }
  EXPECT_TRUE(member.is_silent(2));
  EXPECT_EQ(questions, 1U);
}

}  // namespace
}  // namespace starling::collective

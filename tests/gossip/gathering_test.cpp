// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr Progress kAt{7, 7};
constexpr Attempt kAttempt = 1;

Sha256Digest digest(int last) {
  std::array<std::byte, Sha256Digest::kBytes> bytes{};
  bytes.back() = static_cast<std::byte>(last);
  return Sha256Digest(bytes);
}

// Member 0 of five gathers.
class Gather : public ::testing::Test {
 protected:
  GatherView view() const {
    return {.options = options_,
            .liveness = liveness_,
            .history = history_,
            .expected = expected_,
            .ended_at = {},
            .arrivals = 1s,
            .patience = {.answer = options_.answer, .piece = 4s, .start = 0s, .max = 60s},
            .now = now_};
  }
  void add(Members members, const Members& lost = {}) {
    for (const Member m : members) gathering_.add(m, {.lost = lost}, now_);
  }

  AllReduceOptions options_;
  MemberLiveness liveness_{5, 0};
  GatherHistory history_;
  std::set<Member> expected_{0, 1, 2, 3, 4};
  TimePoint now_{1000s};
  Gathering gathering_{kAt, kAttempt, Registrations({.members = 5}, 0, false), view()};
};

TEST_F(Gather, IsDueWhenAllAreHereOrTheLearnedTimeIsOver) {
  EXPECT_FALSE(gathering_.is_due(view()));
  add({0, 1, 2, 3});
  EXPECT_FALSE(gathering_.is_due(view()));
  EXPECT_EQ(gathering_.deadline(view()), now_ + options_.answer / 4);  // a heartbeat
  now_ += 1s;
  EXPECT_TRUE(gathering_.is_due(view()));
  now_ -= 1s;
  add({4});
  EXPECT_TRUE(gathering_.is_due(view()));
}

TEST_F(Gather, WaitsForNobodyThatIsSilentOrLeftOut) {
  add({0, 1, 2});
  liveness_.call_silent(3, now_);
  EXPECT_FALSE(gathering_.is_complete(view()));
  EXPECT_THAT(gathering_.stragglers(view()), ElementsAre(4));
  history_.bar(kAt, {4});
  EXPECT_TRUE(gathering_.is_complete(view()));
  EXPECT_THAT(gathering_.stragglers(view()), IsEmpty());
}

TEST_F(Gather, AMinorityGoesOnOnlyWhereNobodyHearsTheOthers) {
  for (const Member m : {2, 3, 4}) liveness_.call_silent(m, now_);
  add({0});
  add({1}, {2, 3});
  now_ += options_.answer;
  EXPECT_FALSE(gathering_.may_go_on(view()));
  EXPECT_THAT(gathering_.hears_more(view()), Optional(Member{1}));
  add({1}, {2, 3, 4});
  EXPECT_TRUE(gathering_.may_go_on(view()));
  EXPECT_EQ(gathering_.hears_more(view()), std::nullopt);
}

TEST_F(Gather, WhoIsAskedThriceAndDoesNotComeIsWaitedForNoMore) {
  add({0, 1});
  for (unsigned i = 0; i < Gathering::kAsksMax; ++i) {
    EXPECT_THAT(gathering_.ask_all(view()), ElementsAre(2, 3, 4));
    EXPECT_FALSE(gathering_.may_go_on(view()));
  }
  gathering_.ask_all(view());
  EXPECT_TRUE(gathering_.may_go_on(view()));
}

TEST_F(Gather, HeartbeatsGoToWhoWaitsForAListOrIsLeftOut) {
  add({0, 1, 2});
  EXPECT_THAT(gathering_.heartbeat(view()), IsEmpty());
  now_ += 1s;
  EXPECT_THAT(gathering_.heartbeat(view()), ElementsAre(1, 2));
  gathering_.set_list({.to = {0, 1}}, now_);
  history_.bar(kAt, {4});
  now_ += 1s;
  EXPECT_THAT(gathering_.heartbeat(view()), ElementsAre(2, 4));
}

TEST_F(Gather, SaysWhoCameLastAfterMost) {
  add({0, 1, 2});
  EXPECT_EQ(gathering_.last(), std::nullopt);
  now_ += 1s;
  add({3, 0});
  EXPECT_THAT(gathering_.last(), Optional(std::pair<Member, TimePoint>(3, now_)));
  gathering_.set_list({.to = {0, 1, 2, 3}}, now_);
  add({4});
  EXPECT_EQ(gathering_.last()->first, 3);
}

TEST_F(Gather, AMeanThatStandsIsTakenOfAMemberThatIsHeard) {
  SentList list{.to = {0, 1, 2},
                .mean = {.attempt = 3, .members = {0, 1, 2}, .sha256 = digest(1)},
                .holders = {0, 1},
                .weak = true};
  const auto holder = [&](const Registration& its) {
    return std::get<reduce::Standing>(list.note(2, its)).holder;
  };
  EXPECT_EQ(holder({}), 0);
  EXPECT_EQ(holder({.lost = {0}}), 1);
  EXPECT_EQ(holder({.blame = Blame{.member = 0}}), 1);
  EXPECT_EQ(holder({.lost = {0, 1}}), 0);
  EXPECT_TRUE(std::get<reduce::Standing>(list.note(2, {})).mean.weak);
}

TEST(SentList, NamesWhoHoldsAnotherMeanThanOurselvesOrMost) {
  SentList list{.to = {0, 1, 2}, .awaited = {2}};
  list.done = {{digest(1), {1}}, {digest(2), {0}}};
  EXPECT_FALSE(list.differs());  // all are heard first
  list.awaited.clear();
  list.done[digest(1)].push_back(2);
  EXPECT_TRUE(list.differs());
  EXPECT_THAT(list.others(0), ElementsAre(1, 2));
  EXPECT_THAT(list.others(3), ElementsAre(0));
}

TEST(SentList, WhereAMeanStandsAnotherIsSeenAtOnce) {
  SentList list{.to = {0, 1, 2}, .mean = {.attempt = 3, .sha256 = digest(1)}, .awaited = {2}};
  list.done = {{digest(1), {0}}};
  EXPECT_FALSE(list.differs());
  list.done[digest(2)].push_back(1);
  EXPECT_TRUE(list.differs());
  EXPECT_THAT(list.others(1), ElementsAre(1));
}

TEST(SentList, TheFirstOfTheLongWaitsIsTheCause) {
  SentList list{.to = {0, 1, 2, 3}};
  EXPECT_EQ(list.first_wait(), nullptr);
  list.waits = {{0, {.of = 3, .piece = 1, .milliseconds = 10}},
                {1, {.of = 0, .piece = 3, .milliseconds = 4000}},
                {3, {.of = 2, .piece = 2, .milliseconds = 1500}}};
  EXPECT_EQ(list.first_wait(), &list.waits[2]);
}

TEST(SentList, EndsSoonOnceAMemberIsDone) {
  const MemberLiveness liveness(3, 0);
  SentList list{.to = {0, 1, 2}, .awaited = {0, 1, 2}, .progress_at = TimePoint(10s)};
  EXPECT_EQ(list.ends_at(4s, liveness), TimePoint(26s));
  list.awaited.erase(1);
  EXPECT_EQ(list.ends_at(4s, liveness), TimePoint(13s));
}

TEST(GatherHistory, ForgetsListsAndExclusionsInTheNextExchange) {
  constexpr Progress kNext{8, 8};
  GatherHistory history;
  history.sent(kAt, 1, Members{0, 1, 2});
  history.exclude(2);
  EXPECT_FALSE(history.has_many_lists(kAt));
  history.sent(kAt, 6, Members{1});  // which holds a mean that stands
  EXPECT_TRUE(history.has_many_lists(kAt));
  EXPECT_THAT(history.sources(kAt), ElementsAre(1));
  EXPECT_TRUE(history.is_left_out(kAt, 2));
  EXPECT_TRUE(history.was_sent(kAt, 6));
  EXPECT_FALSE(history.was_sent(kNext, 1));
  history.sent(kNext, 1, {});
  EXPECT_FALSE(history.has_many_lists(kNext));
  EXPECT_THAT(history.sources(kNext), IsEmpty());
  EXPECT_FALSE(history.is_left_out(kNext, 2));
  EXPECT_EQ(history.last_attempt(kAt), 0U);
}

}  // namespace
}  // namespace starling::collective

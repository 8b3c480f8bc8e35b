// SPDX-License-Identifier: Apache-2.0
// Each event of the failure detector in each state of a member, by hand on a group of five.
#include "gossip/membership/swim_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

namespace starling::gossip::membership {
namespace {

using protocol::Swim;
using protocol::SwimNews;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr protocol::Epoch kEpoch = 7;
constexpr Member kSelf = 0;

// A machine whose time the test moves. Everybody else is silent unless the test speaks for them.
struct Bench {
  explicit Bench(Member members = 5, const SwimOptions& options = {})
      : machine(options, kEpoch, kSelf, members, Rng({.seed = 3}), TimePoint{}) {}

  std::vector<Action> on(const Event& event) { return machine.on(event, now); }
  // What the machine does in `duration`, called whenever it asks for it.
  std::vector<Action> pass(Duration duration, const std::function<bool()>& until = {}) {
    std::vector<Action> all;
    const TimePoint end = now + duration;
    while (!(until && until()) && machine.next_deadline() && *machine.next_deadline() <= end) {
      now = std::max(now, *machine.next_deadline());
      for (Action& action : on(Tick{})) all.push_back(std::move(action));
    }
    if (!(until && until())) now = end;
    return all;
  }
  std::vector<Action> receive(Member from, Swim::Kind kind, std::vector<SwimNews> news = {},
                              std::uint64_t sequence = 1, Member target = kSelf) {
    return on(Received{from, {kind, kEpoch, sequence, target, std::move(news)}});
  }
  std::vector<Action> tell(SwimNews news, Member from = 4) {
    return receive(from, Swim::Kind::kAck, {news}, 0);
  }
  // Member 1, by news and silence, at incarnation 5.
  void bring_to(State state) {
    tell({1, State::kAlive, 5, 1});
    if (state != State::kAlive) tell({1, State::kSuspect, 5, 2});
    if (state == State::kDead) {
      pass(seconds(60), [this] { return machine.state(1) == State::kDead; });
    }
    ASSERT_EQ(machine.state(1), state);
    ASSERT_EQ(machine.incarnation(1), 5U);
  }
  // Answers pings until one to `member` goes out, and returns that.
  Swim next_ping(Member member) {
    for (int i = 0; i < 1000; ++i) {
      now = std::max(now, *machine.next_deadline());
      for (const Action& action : on(Tick{})) {
        const auto* send = std::get_if<Send>(&action);
        if (!send || send->swim.kind != Swim::Kind::kPing) continue;
        if (send->to == member) return send->swim;
        receive(send->to, Swim::Kind::kAck, {}, send->swim.sequence, send->to);
      }
    }
    ADD_FAILURE() << "no ping to " << member;
    return {};
  }

  TimePoint now{};
  SwimMachine machine;
};

std::vector<Send> sends(const std::vector<Action>& actions, Swim::Kind kind) {
  std::vector<Send> found;
  for (const Action& action : actions) {
    const auto* send = std::get_if<Send>(&action);
    if (send && send->swim.kind == kind) found.push_back(*send);
  }
  return found;
}
std::vector<Changed> changes(const std::vector<Action>& actions) {
  std::vector<Changed> found;
  for (const Action& action : actions) {
    if (const auto* changed = std::get_if<Changed>(&action)) found.push_back(*changed);
  }
  return found;
}
std::vector<Member> receivers(const std::vector<Send>& sent) {
  std::vector<Member> to;
  for (const Send& send : sent) to.push_back(send.to);
  return to;
}

constexpr State kA = State::kAlive, kS = State::kSuspect, kD = State::kDead;

TEST(SwimMachine, BelievesTheLargerOfIncarnationAndStateButNoDeathByHearsay) {
  struct Case {
    State before;
    SwimNews news;
    State after;
    std::uint32_t incarnation;
  };
  const std::vector<Case> cases = {
      {kA, {1, kA, 4, 1}, kA, 5}, {kA, {1, kA, 5, 1}, kA, 5}, {kA, {1, kA, 6, 1}, kA, 6},
      {kA, {1, kS, 4, 2}, kA, 5}, {kA, {1, kS, 5, 2}, kS, 5}, {kA, {1, kS, 6, 2}, kS, 6},
      {kA, {1, kD, 4, 2}, kA, 5}, {kA, {1, kD, 5, 2}, kS, 5}, {kA, {1, kD, 6, 2}, kS, 6},
      {kS, {1, kA, 4, 1}, kS, 5}, {kS, {1, kA, 5, 1}, kS, 5}, {kS, {1, kA, 6, 1}, kA, 6},
      {kS, {1, kS, 4, 3}, kS, 5}, {kS, {1, kS, 5, 3}, kS, 5}, {kS, {1, kS, 6, 3}, kS, 6},
      {kS, {1, kD, 4, 3}, kS, 5}, {kS, {1, kD, 5, 3}, kS, 5}, {kS, {1, kD, 6, 3}, kS, 6},
      {kD, {1, kA, 4, 1}, kD, 5}, {kD, {1, kA, 5, 1}, kD, 5}, {kD, {1, kA, 6, 1}, kA, 6},
      {kD, {1, kS, 4, 2}, kD, 5}, {kD, {1, kS, 5, 2}, kD, 5}, {kD, {1, kS, 6, 2}, kS, 6},
      {kD, {1, kD, 4, 2}, kD, 5}, {kD, {1, kD, 5, 2}, kD, 5}, {kD, {1, kD, 6, 2}, kD, 6},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    Bench bench;
    bench.bring_to(c.before);
    const auto told = changes(bench.tell(c.news));
    EXPECT_EQ(bench.machine.state(1), c.after) << "case " << i;
    EXPECT_EQ(bench.machine.incarnation(1), c.incarnation) << "case " << i;
    if (c.before == c.after) {
      EXPECT_THAT(told, IsEmpty()) << "case " << i;
    } else {
      EXPECT_THAT(told, ElementsAre(Changed{1, c.after})) << "case " << i;
    }
  }
}

TEST(SwimMachine, CountsWhoIsReachable) {
  Bench bench;
  EXPECT_EQ(bench.machine.reachable(), 5U);
  bench.bring_to(kS);
  EXPECT_EQ(bench.machine.reachable(), 5U);
  bench.pass(seconds(200));
  EXPECT_EQ(bench.machine.reachable(), 1U);
  bench.tell({1, kA, 6, 1}, 1);
  EXPECT_EQ(bench.machine.reachable(), 2U);
}

TEST(SwimMachine, ProbesEachMemberOnceARound) {
  Bench bench;
  std::vector<int> pinged(5);
  for (int period = 0; period < 40; ++period) {
    for (const Send& ping : sends(bench.pass(seconds(1)), Swim::Kind::kPing)) {
      ++pinged[ping.to];
      bench.receive(ping.to, Swim::Kind::kAck, {}, ping.swim.sequence, ping.to);
    }
  }
  EXPECT_THAT(pinged, ElementsAre(0, 10, 10, 10, 10));
  EXPECT_EQ(bench.machine.reachable(), 5U);
}

TEST(SwimMachine, AsksOthersAfterTheTimeoutThenSuspects) {
  Bench bench;
  bench.next_ping(1);
  const auto asked = sends(bench.pass(milliseconds(499)), Swim::Kind::kPingRequest);
  EXPECT_THAT(asked, ::testing::Each(::testing::Field(&Send::to, ::testing::Ne(1U))));
  const auto late = sends(bench.pass(milliseconds(1)), Swim::Kind::kPingRequest);
  ASSERT_EQ(late.size(), 3U);
  EXPECT_THAT(receivers(late), ::testing::UnorderedElementsAre(2, 3, 4));
  EXPECT_EQ(late[0].swim.target, 1U);
  EXPECT_EQ(bench.machine.state(1), kA);
  EXPECT_THAT(changes(bench.pass(seconds(2))), Contains(Changed{1, kS}));
}

TEST(SwimMachine, AnAnswerThroughAnotherIsAnAnswerButOnlyFromWhomItAsked) {
  SwimOptions options;
  options.indirect_probes = 1;
  for (const bool asked : {true, false}) {
    Bench bench(5, options);
    const Swim ping = bench.next_ping(1);
    const auto requests = sends(bench.pass(milliseconds(500)), Swim::Kind::kPingRequest);
    ASSERT_EQ(requests.size(), 1U);
    const Member helper = requests[0].to;
    const Member other = helper == 2 ? 3 : 2;
    bench.receive(asked ? helper : other, Swim::Kind::kAck, {}, ping.sequence, 1);
    const auto changed = changes(bench.pass(milliseconds(1001)));
    EXPECT_EQ(std::ranges::count(changed, Changed{1, kS}), asked ? 0 : 1);
  }
}

TEST(SwimMachine, AnswersPingsWhateverItThinksOfTheSpeaker) {
  for (const State state : {kA, kS, kD}) {
    Bench bench;
    bench.bring_to(state);
    const auto acks = sends(bench.receive(1, Swim::Kind::kPing, {}, 99), Swim::Kind::kAck);
    ASSERT_EQ(acks.size(), 1U);
    EXPECT_EQ(acks[0].to, 1U);
    EXPECT_EQ(acks[0].swim.sequence, 99U);
    EXPECT_EQ(acks[0].swim.target, kSelf);
    ASSERT_FALSE(acks[0].swim.news.empty());
    EXPECT_EQ(acks[0].swim.news[0], (SwimNews{kSelf, kA, 0, kSelf}));
    // Whoever is accused is told so first, that it can refute.
    if (state != kA) {
      ASSERT_GE(acks[0].swim.news.size(), 2U);
      EXPECT_EQ(acks[0].swim.news[1].member, 1U);
      EXPECT_EQ(acks[0].swim.news[1].state, state);
    }
    EXPECT_EQ(bench.machine.state(1), state);
  }
}

TEST(SwimMachine, PingsForAnotherAndBringsBackTheAnswer) {
  Bench bench;
  const auto pings =
      sends(bench.receive(2, Swim::Kind::kPingRequest, {}, 50, 3), Swim::Kind::kPing);
  ASSERT_EQ(pings.size(), 1U);
  EXPECT_EQ(pings[0].to, 3U);
  const std::uint64_t sequence = pings[0].swim.sequence;
  // Another's answer is none.
  EXPECT_THAT(sends(bench.receive(4, Swim::Kind::kAck, {}, sequence, 3), Swim::Kind::kAck),
              IsEmpty());
  const auto acks = sends(bench.receive(3, Swim::Kind::kAck, {}, sequence, 3), Swim::Kind::kAck);
  ASSERT_EQ(acks.size(), 1U);
  EXPECT_EQ(acks[0].to, 2U);
  EXPECT_EQ(acks[0].swim.sequence, 50U);
  EXPECT_EQ(acks[0].swim.target, 3U);
  // Once.
  EXPECT_THAT(sends(bench.receive(3, Swim::Kind::kAck, {}, sequence, 3), Swim::Kind::kAck),
              IsEmpty());
}

TEST(SwimMachine, PingsForOneMemberOnlySoMuchAtATime) {
  Bench bench;
  std::size_t pings = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    pings += sends(bench.receive(2, Swim::Kind::kPingRequest, {}, i, 3), Swim::Kind::kPing).size();
  }
  EXPECT_EQ(pings, kRelaysMax);
  EXPECT_EQ(sends(bench.receive(4, Swim::Kind::kPingRequest, {}, 1, 3), Swim::Kind::kPing).size(),
            1U);
  bench.pass(seconds(7));
  EXPECT_EQ(sends(bench.receive(2, Swim::Kind::kPingRequest, {}, 1, 3), Swim::Kind::kPing).size(),
            1U);
}

TEST(SwimMachine, HearingOfAProbedMemberEndsTheProbe) {
  Bench bench;
  bench.next_ping(1);
  bench.on(Heard{1});
  const auto actions = bench.pass(milliseconds(1600));
  for (const Send& request : sends(actions, Swim::Kind::kPingRequest)) {
    EXPECT_NE(request.swim.target, 1U);
  }
  EXPECT_EQ(std::ranges::count(changes(actions), Changed{1, kS}), 0);
}

TEST(SwimMachine, HearingASuspectOrDeadMemberPingsItOnceAtOnce) {
  for (const State state : {kS, kD}) {
    Bench bench;
    bench.bring_to(state);
    auto pings = sends(bench.on(Heard{1}), Swim::Kind::kPing);
    for (int i = 0; i < 100 && pings.empty(); ++i) {  // while a probe of it is on its way
      bench.pass(milliseconds(100));
      pings = sends(bench.on(Heard{1}), Swim::Kind::kPing);
    }
    ASSERT_EQ(bench.machine.state(1), state);
    ASSERT_EQ(pings.size(), 1U);
    EXPECT_EQ(pings[0].swim.news[1].state, state);
    EXPECT_THAT(bench.on(Heard{1}), IsEmpty());
    EXPECT_EQ(bench.machine.state(1), state);  // it must say itself that it lives
    const auto changed =
        changes(bench.receive(1, Swim::Kind::kAck, {{1, kA, 6, 1}}, pings[0].swim.sequence, 1));
    EXPECT_THAT(changed, ElementsAre(Changed{1, kA}));
  }
}

TEST(SwimMachine, ASuspectThatIsHeardDoesNotDie) {
  Bench bench;
  bench.bring_to(kS);
  for (int i = 0; i < 100; ++i) {
    bench.pass(seconds(1));
    bench.on(Heard{1});
  }
  EXPECT_EQ(bench.machine.state(1), kS);
  bench.pass(seconds(25));
  EXPECT_EQ(bench.machine.state(1), kD);
}

TEST(SwimMachine, ALostLinkIsProbedThroughOthersAtOnce) {
  for (const State state : {kA, kS}) {
    Bench bench;
    bench.bring_to(state);
    const auto actions = bench.on(LinkLost{1});
    EXPECT_EQ(sends(actions, Swim::Kind::kPingRequest).size(), 3U);
    EXPECT_THAT(sends(actions, Swim::Kind::kPing), IsEmpty());
    EXPECT_EQ(bench.machine.state(1), state);
    EXPECT_THAT(bench.on(LinkLost{1}), IsEmpty());
    bench.pass(seconds(2));
    EXPECT_EQ(bench.machine.state(1), kS);
  }
  Bench dead;
  dead.bring_to(kD);
  EXPECT_THAT(dead.on(LinkLost{1}), IsEmpty());
}

TEST(SwimMachine, ALostLinkWithNobodyToAskIsASuspicionAtOnce) {
  Bench two(2);
  EXPECT_THAT(changes(two.on(LinkLost{1})), ElementsAre(Changed{1, kS}));
  EXPECT_EQ(two.machine.health(), 0U);
}

TEST(SwimMachine, SuspicionLastsBetweenTheTwoTimesByConfirmations) {
  // Of 5 members: S_min = 4 s, S_max = 24 s, K = 3.
  for (Member confirmations = 0; confirmations <= 3; ++confirmations) {
    SwimOptions options;
    options.probe_period = std::chrono::hours(1);
    options.probe_timeout_max = options.probe_timeout_first = std::chrono::hours(24);
    options.suspicion_min_factor = 1;
    Bench bench(5, options);
    const TimePoint began = bench.now;
    bench.tell({1, kS, 0, 2});
    bench.tell({1, kS, 0, 2});  // the same one again confirms nothing
    if (confirmations >= 1) bench.tell({1, kS, 0, 3});
    if (confirmations >= 2) bench.tell({1, kD, 0, 4});
    if (confirmations >= 3) bench.tell({1, kS, 0, kSelf});
    // Its own probes would confirm if they ended before.
    bench.pass(std::chrono::hours(10), [&] { return bench.machine.state(1) == kD; });
    const double expected = 6 - 5 * std::log(confirmations + 1.0) / std::log(4.0);
    EXPECT_NEAR(to_seconds(bench.now - began) / 3600, expected, 1e-6) << confirmations;
  }
}

TEST(SwimMachine, RefutesWhatItHearsOfItself) {
  Bench bench;
  bench.tell({kSelf, kS, 0, 2});
  EXPECT_EQ(bench.machine.incarnation(), 1U);
  bench.tell({kSelf, kS, 0, 2});  // refuted already
  EXPECT_EQ(bench.machine.incarnation(), 1U);
  bench.tell({kSelf, kD, 41, 2});  // of an earlier process
  EXPECT_EQ(bench.machine.incarnation(), 42U);
  bench.tell({kSelf, kA, 60, kSelf});
  EXPECT_EQ(bench.machine.incarnation(), 60U);
  EXPECT_EQ(bench.machine.state(kSelf), kA);
  const auto acks = sends(bench.receive(3, Swim::Kind::kPing), Swim::Kind::kAck);
  EXPECT_EQ(acks[0].swim.news[0], (SwimNews{kSelf, kA, 60, kSelf}));
}

TEST(SwimMachine, AtTheLastIncarnationNobodyAccusesByHearsay) {
  Bench bench;
  bench.tell({kSelf, kS, kIncarnationMax, 2});
  EXPECT_EQ(bench.machine.incarnation(), kIncarnationMax);
  bench.tell({kSelf, kD, kIncarnationMax, 2});
  EXPECT_EQ(bench.machine.incarnation(), kIncarnationMax);
  EXPECT_EQ(bench.machine.state(kSelf), kA);

  bench.tell({1, kA, kIncarnationMax, 1}, 1);
  EXPECT_EQ(bench.machine.incarnation(1), kIncarnationMax);
  bench.tell({1, kD, kIncarnationMax, 2}, 2);
  EXPECT_EQ(bench.machine.state(1), kA);
  bench.pass(seconds(100));
  EXPECT_EQ(bench.machine.state(1), kD);  // found out by itself
  bench.tell({1, kA, kIncarnationMax, 1}, 2);
  EXPECT_EQ(bench.machine.state(1), kD);
  bench.tell({1, kA, kIncarnationMax, 1}, 1);
  EXPECT_EQ(bench.machine.state(1), kA);
}

TEST(SwimMachine, BelievesAJumpOnlyFromTheMemberItself) {
  Bench bench;
  for (const State state : {kA, kS, kD}) bench.tell({1, state, kIncarnationJumpMax + 1, 2});
  EXPECT_EQ(bench.machine.incarnation(1), 0U);
  EXPECT_EQ(bench.machine.state(1), kA);
  bench.tell({1, kA, 1'000'000, 1}, 1);
  EXPECT_EQ(bench.machine.incarnation(1), 1'000'000U);
}

TEST(SwimMachine, WaitsByMeasuredRoundTrips) {
  SwimOptions options;
  Bench bench(2, options);
  EXPECT_EQ(bench.machine.probe_timeout(1), options.probe_timeout_first);
  const auto exchange = [&](Duration round_trip) {
    const Swim ping = bench.next_ping(1);
    bench.now += round_trip;
    bench.receive(1, Swim::Kind::kAck, {}, ping.sequence, 1);
  };
  exchange(milliseconds(60));  // mean 60 ms, deviation 30 ms
  EXPECT_EQ(bench.machine.probe_timeout(1), milliseconds(180));
  for (int i = 0; i < 100; ++i) exchange(milliseconds(2));
  EXPECT_EQ(bench.machine.probe_timeout(1), options.probe_timeout_min);
  for (int i = 0; i < 100; ++i) exchange(milliseconds(400));
  EXPECT_NEAR(to_seconds(bench.machine.probe_timeout(1)), 0.4, 0.01);
}

TEST(SwimMachine, ALateAnswerTeachesPatience) {
  SwimOptions options;
  options.probe_period = seconds(1);
  options.late_min = seconds(100);
  Bench bench(2, options);
  const Swim ping = bench.next_ping(1);
  bench.pass(milliseconds(1700));
  ASSERT_EQ(bench.machine.state(1), kS);
  bench.tell({1, kA, 1, 1}, 1);
  const unsigned health = bench.machine.health();
  bench.receive(1, Swim::Kind::kAck, {}, ping.sequence, 1);
  EXPECT_EQ(bench.machine.probe_timeout(1), (1 + health) * options.probe_timeout_max);
}

TEST(SwimMachine, DeadMembersAreProbedForEverAtABoundedRate) {
  Bench bench;
  bench.pass(seconds(200));
  ASSERT_EQ(bench.machine.reachable(), 1U);
  std::vector<int> pinged(5);
  for (const Send& ping : sends(bench.pass(seconds(800)), Swim::Kind::kPing)) ++pinged[ping.to];
  for (Member m = 1; m < 5; ++m) EXPECT_NEAR(pinged[m], 100, 5);
  // Who answers brings the next one's probe at once.
  const Swim ping = bench.next_ping(2);
  const Member other = 2;
  bench.receive(other, Swim::Kind::kAck, {{other, kA, 1, other}}, ping.sequence, other);
  EXPECT_EQ(bench.machine.state(other), kA);
  EXPECT_EQ(bench.machine.next_deadline(), bench.now);
  EXPECT_EQ(sends(bench.on(Tick{}), Swim::Kind::kPing).size(), 1U);
}

TEST(SwimMachine, TellsEachNewsOnlySoOften) {
  Bench bench;
  bench.tell({1, kA, 3, 1});
  int told = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    for (const Send& ack : sends(bench.receive(2, Swim::Kind::kPing, {}, i), Swim::Kind::kAck)) {
      told += static_cast<int>(std::ranges::count(ack.swim.news, SwimNews{1, kA, 3, 1}));
    }
  }
  EXPECT_EQ(told, std::ceil(3 * std::log(6)));
}

// Acks until nothing is left to tell but what always is.
void tell_all(Bench& bench) {
  for (int i = 0; i < 50; ++i) bench.receive(4, Swim::Kind::kPing);
  ASSERT_EQ(sends(bench.receive(4, Swim::Kind::kPing), Swim::Kind::kAck)[0].swim.news.size(), 1U);
}

TEST(SwimMachine, AnotherFinderOfASuspicionIsToldOn) {
  Bench bench;
  bench.bring_to(kS);
  tell_all(bench);
  bench.tell({1, kS, 5, 2});  // known
  EXPECT_EQ(sends(bench.receive(4, Swim::Kind::kPing), Swim::Kind::kAck)[0].swim.news.size(), 1U);
  bench.tell({1, kS, 5, 3});
  EXPECT_THAT(sends(bench.receive(4, Swim::Kind::kPing), Swim::Kind::kAck)[0].swim.news,
              Contains(SwimNews{1, kS, 5, 3}));
}

TEST(SwimMachine, WhoIsAskedToPingASuspectIsToldToTellIt) {
  Bench bench;
  bench.bring_to(kS);
  tell_all(bench);
  const auto requests = sends(bench.on(LinkLost{1}), Swim::Kind::kPingRequest);
  ASSERT_EQ(requests.size(), 3U);
  for (const Send& request : requests) {
    EXPECT_THAT(request.swim.news, Contains(SwimNews{1, kS, 5, 2}));
  }
}

TEST(SwimMachine, TimeInWhichItDidNotRunKillsNobody) {
  Bench bench;
  bench.bring_to(kS);
  bench.tell({2, kS, 0, 3});
  bench.now += std::chrono::hours(2);
  EXPECT_THAT(changes(bench.on(Tick{})), IsEmpty());
  EXPECT_EQ(bench.machine.health(), 1U);
  EXPECT_THAT(changes(bench.pass(milliseconds(900))), IsEmpty());
  // And it may still hear the refutation that was waiting.
  EXPECT_THAT(changes(bench.tell({1, kA, 6, 1})), ElementsAre(Changed{1, kA}));
}

TEST(SwimMachine, HealthSlowsTheJudgementAndRecovers) {
  Bench bench;
  const Duration well = bench.machine.probe_timeout(1);
  bench.tell({kSelf, kS, 0, 2});
  bench.tell({kSelf, kS, 1, 2});
  EXPECT_EQ(bench.machine.health(), 2U);
  EXPECT_EQ(bench.machine.probe_timeout(1), 3 * well);
  for (int i = 0; i < 2; ++i) {
    const Swim ping = bench.next_ping(1);
    bench.receive(1, Swim::Kind::kAck, {}, ping.sequence, 1);
  }
  EXPECT_EQ(bench.machine.health(), 0U);
  for (std::uint32_t i = 2; i < 20; ++i) bench.tell({kSelf, kS, i, 2});
  EXPECT_EQ(bench.machine.health(), SwimOptions{}.health_max);
}

TEST(SwimMachine, FailuresInSilenceAreItsOwn) {
  Bench silent;
  silent.pass(seconds(5));
  EXPECT_GT(silent.machine.health(), 0U);
  Bench hearing;
  for (int i = 0; i < 50; ++i) {
    hearing.pass(milliseconds(100));
    hearing.on(Heard{4});
  }
  EXPECT_EQ(hearing.machine.health(), 0U);
}

TEST(SwimMachine, IgnoresWhatIsOfNoMemberOrOfAnotherEpoch) {
  Bench bench;
  const std::vector<Event> events = {
      Heard{kSelf},
      Heard{5},
      LinkLost{kSelf},
      LinkLost{5},
      Received{5, {Swim::Kind::kPing, kEpoch, 1, kSelf, {{1, kS, 0, 2}}}},
      Received{kSelf, {Swim::Kind::kPing, kEpoch, 1, kSelf, {{1, kS, 0, 2}}}},
      Received{2, {Swim::Kind::kPing, kEpoch + 1, 1, kSelf, {{1, kS, 0, 2}}}},
      Received{2, {Swim::Kind::kPing, kEpoch - 1, 1, kSelf, {{kSelf, kD, 0, 2}}}},
      Received{2, {Swim::Kind::kPingRequest, kEpoch, 1, kSelf, {}}},
      Received{2, {Swim::Kind::kPingRequest, kEpoch, 1, 2, {}}},
      Received{2, {Swim::Kind::kPingRequest, kEpoch, 1, 5, {}}},
      Received{2, {Swim::Kind::kAck, kEpoch, 1, 5, {}}},
      Received{2, {Swim::Kind::kAck, kEpoch, 1, kSelf, {}}},
      Received{2, {Swim::Kind::kAck, kEpoch, 1, 2, {{5, kS, 0, 2}, {1, kS, 0, 5}, {1, kS, 0, 1}}}},
      Received{2, {Swim::Kind::kAck, kEpoch, 1, 2, {{1, static_cast<State>(3), 0, 2}}}},
  };
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_THAT(bench.on(events[i]), IsEmpty()) << "event " << i;
  }
  EXPECT_EQ(bench.machine.incarnation(), 0U);
  EXPECT_EQ(bench.machine.reachable(), 5U);
}

TEST(SwimMachine, AloneItHasNothingToDo) {
  Bench bench(1);
  EXPECT_EQ(bench.machine.next_deadline(), std::nullopt);
  EXPECT_THAT(bench.on(Tick{}), IsEmpty());
  EXPECT_EQ(bench.machine.reachable(), 1U);
}

}  // namespace
}  // namespace starling::gossip::membership

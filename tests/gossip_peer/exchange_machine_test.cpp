// SPDX-License-Identifier: Apache-2.0
// The exchange machine on a simulated network: who waits for whom and how long, when members are
// killed and come back, the network falls apart, or one is slow.
#include "gossip/peer/exchange_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "tests/gossip_peer/exchange_network.h"

namespace starling::gossip {
namespace {

using namespace exchange;
using namespace std::chrono_literals;
using testing::ExchangeNetwork;

ExchangeNetwork::World world(std::uint64_t seed, Exchange steps) {
  static constexpr std::array<const char*, 4> kTopologies = {"ring", "exponential", "complete",
                                                             "one-peer-exponential"};
  ExchangeNetwork::World world{.seed = seed, .topology = kTopologies[seed % kTopologies.size()]};
  world.work = 0.05;
  world.members = world.topology == "one-peer-exponential" ? 8 : 4 + seed % 5;
  world.options.schedule.steps = steps;
  const bool mutual = world.topology == "ring" || world.topology == "complete";
  world.options.spread = world.members;
  world.options.resent = mutual ? 2 : world.options.spread + 1;
  world.options.held_max = world.options.resent;
  return world;
}

// All of them in the optimised build; under sanitizers, which take ten times as long, a sixth, but
// each topology.
constexpr std::uint64_t seeds(std::uint64_t all) {
  constexpr bool kAll = STARLING_SEED_GROUPS > 1;
  return kAll ? all : std::max<std::uint64_t>(all / 6, all < 4 ? 1 : 4);
}

double seconds(Duration duration) { return to_seconds(duration); }

// How often each member waited as long as a deadline.
std::map<Member, int> long_waits(const ExchangeNetwork& network, const ExchangeOptions& options) {
  std::map<Member, int> counts;
  for (const ExchangeNetwork::Wait& wait : network.waits()) {
    if (wait.seconds >= seconds(options.patience_min)) ++counts[wait.member];
  }
  return counts;
}

double longest_wait(const ExchangeNetwork& network) {
  return std::ranges::max_element(network.waits(), {}, &ExchangeNetwork::Wait::seconds)->seconds;
}

TEST(ExchangeMachine, WithoutFaultsEverybodyIsHeardInEveryExchange) {
  for (std::uint64_t seed = 0; seed < seeds(50); ++seed) {
    auto of = world(seed, 100);
    of.options.schedule.local_steps = 1 + seed % 3;
    ExchangeNetwork network(of);
    ASSERT_EQ(network.run(), "") << seed;
    const std::uint64_t mixings = of.options.schedule.mixings_until(100);
    EXPECT_EQ(network.waits().size(), of.members * mixings) << seed;
    for (const auto& wait : network.waits()) ASSERT_TRUE(wait.complete) << seed;
    EXPECT_EQ(network.wrong_entries(), 0U);
  }
}

// A neighbour that runs ahead, or lies, makes nobody hold the models of a whole ring's spread.
TEST(ExchangeMachine, TwoMessagesOfANeighbourAreHeldAtMost) {
  constexpr Member kNodes = 64;
  const auto topology = topologies::Topology::make({.spec = "ring", .nodes = kNodes});
  ASSERT_TRUE(topology);
  ExchangeOptions options;
  options.schedule.steps = 1000;
  options.spread = kNodes;
  ExchangeMachine machine(options, **topology, 0, std::vector<std::string>(kNodes, "node"), 0,
                          TimePoint{});
  machine.on(Begin{}, TimePoint{});
  std::vector<std::weak_ptr<const void>> models;
  const auto held = [&] {
    return std::ranges::count_if(models, [](const auto& model) { return !model.expired(); });
  };
  for (Exchange at = 0; at < 3 * kNodes; ++at) {
    SharedBytes data = SharedBytes::own(Bytes(8));
    models.push_back(data.owner());
    Arrival arrival{1, {.exchange = at}, {}, std::move(data)};
    machine.on(MessageReceived{std::move(arrival)}, TimePoint{});
    ASSERT_LE(held(), 2) << at;
  }
  EXPECT_FALSE(models.front().expired()) << "the one that comes next";
  EXPECT_FALSE(models.back().expired()) << "the one to go on from";
}

// A device that slept finds messages of then, and with them ends an exchange as usual; a moment
// later its neighbours say where they are. It takes their model, once, and does not go after them
// in small steps with its own.
class WhoSlept : public ::testing::Test {
 protected:
  WhoSlept() {
    options_.schedule.steps = 1'000'000;
    options_.spread = 2;
    options_.run_age = Duration::zero();
    machine_.emplace(options_, **topology_, 0, std::vector<std::string>(5, "node"), 0, now_);
    feed(Begin{});
    for (Exchange at = 0; at < 200; ++at) exchange(at);
    now_ += std::chrono::minutes(1);
    exchange(200);
    EXPECT_EQ(machine_->exchange(), 201U);
    came(4, 801);
    came(1, 800);
    now_ += std::chrono::milliseconds(100);
    feed(Trained{});
    feed(Mixed{});
    EXPECT_EQ(machine_->state(), ExchangeMachine::State::kCopying);
  }
  void feed(Event event) { machine_->on(std::move(event), now_); }
  void came(Member from, Exchange at) { feed(MessageReceived{{from, {.exchange = at}, {}, {}}}); }
  void exchange(Exchange at) {
    now_ += std::chrono::milliseconds(100);
    feed(Trained{});
    came(1, at);
    came(4, at);
    feed(Mixed{});
  }

  Result<std::unique_ptr<const topologies::Topology>> topology_ =
      topologies::Topology::make({.spec = "ring", .nodes = 5});
  ExchangeOptions options_;
  TimePoint now_{};
  std::optional<ExchangeMachine> machine_;
};

TEST_F(WhoSlept, TakesTheOthersModelAtOnce) {
  feed(Copied{801, 2});
  EXPECT_EQ(machine_->exchange(), 801U);
  EXPECT_EQ(machine_->state(), ExchangeMachine::State::kTraining);
}

// Of 80 s with phases of 0.1 s, where only one of those that were asked gave its model.
TEST_F(WhoSlept, BelievesASingleDonorNoFurtherThanASingleMember) {
  feed(Copied{500'000, 1});
  EXPECT_GE(machine_->exchange(), 801U);
  EXPECT_LE(machine_->exchange(), 4 * 803 + 12);
}

// Member 0 by itself, whose neighbours a test speaks for.
class OneMachine {
  Result<std::unique_ptr<const topologies::Topology>> topology_;  // outlives the machine

 public:
  OneMachine(const std::string& spec, std::uint32_t nodes, Exchange spread,
             std::optional<Duration> run_age = {})
      : topology_(topologies::Topology::make({.spec = spec, .nodes = nodes})) {
    ExchangeOptions options;
    options.schedule.steps = 1'000'000;
    options.spread = spread;
    options.run_age = run_age;
    machine.emplace(options, **topology_, 0, std::vector<std::string>(nodes, "node"), 0, now);
    feed(Begin{});
  }
  void feed(Event event) {
    for (const Action& action : machine->on(std::move(event), now)) {
      const auto* const said = std::get_if<Say>(&action);
      if (said != nullptr && said->line.find("no other neighbour") != std::string::npos) {
        named.push_back(machine->exchange());
      }
      if (const auto* const copy = std::get_if<Copy>(&action)) donors = copy->donors;
    }
  }
  void came(Member from, Exchange at) { feed(MessageReceived{{from, {.exchange = at}, {}, {}}}); }
  void wait() {
    while (machine->state() == ExchangeMachine::State::kWaiting) {
      now = std::max(now, *machine->next_deadline());
      feed(Tick{});
    }
  }

  TimePoint now{};
  std::vector<Exchange> named;  // when it was said that a neighbour is not followed
  std::vector<Member> donors;   // of the last copy
  std::optional<ExchangeMachine> machine;
};

// What it would send is no model of the exchange that is gone to.
TEST(ExchangeMachine, WhoClaimsToBeFarBeyondTheOthersIsNotAskedForItsModel) {
  OneMachine one("complete", 5, 2, Duration::zero());
  const auto exchange = [&](Exchange at) {
    one.now += 100ms;
    one.feed(Trained{});
    for (const Member from : {1, 2, 3, 4}) one.came(from, at);
    one.feed(Mixed{});
  };
  for (Exchange at = 0; at < 200; ++at) exchange(at);
  one.now += 20s;
  exchange(200);
  one.came(1, 999'999);
  one.came(2, 801);
  one.came(3, 800);
  one.came(4, 802);
  one.now += 100ms;
  one.feed(Trained{});
  one.feed(Mixed{});
  ASSERT_EQ(one.machine->state(), ExchangeMachine::State::kCopying);
  EXPECT_EQ(one.donors, (std::vector<Member>{2, 3, 4}));
}

// A word that its other neighbour, which it left behind, does not bear out is that of one: it makes
// up for the time that was lost and no more. Whoever is no neighbour in the graph moves nobody
// alone.
TEST(ExchangeMachine, WhoLeftItsOtherNeighbourBehindIsMovedByOneNoFurtherThanTheTimeItLost) {
  for (const bool is_neighbour : {true, false}) {
    OneMachine one("ring", 6, 3, Duration::zero());
    const auto exchange = [&](std::vector<Member> from) {
      one.now += 1ms;
      one.feed(Trained{});
      for (const Member member : from) one.came(member, one.machine->exchange());
      one.wait();
      one.feed(Mixed{});
    };
    for (int i = 0; i < 1000; ++i) exchange({1, 5});
    const TimePoint in_step = one.now;
    for (int i = 0; i < 20; ++i) exchange({1});
    const Member liar = is_neighbour ? 5 : 3;
    for (int i = 0; i < 6; ++i) {
      one.now += 300ms;
      one.feed(HelloReceived{liar, 900'000, true, {}});
      one.feed(HelloReceived{1, 1020, true, {}});
      exchange({});
    }
    const auto most = static_cast<Exchange>((one.now - in_step) / 1ms);
    EXPECT_LE(one.machine->exchange(), 1000 + (is_neighbour ? most : 26));
    EXPECT_GE(one.machine->exchange(), 1026U);
    for (int i = 0; i < 2500; ++i) exchange({1});
    EXPECT_EQ(one.named.size(), 1U);
  }
}

// It bears out what a neighbour says, where two are needed; who has a single neighbour is not moved
// by another member in its place.
TEST(ExchangeMachine, WhoIsNoNeighbourMovesNoLeaf) {
  OneMachine one("path", 5, 4);
  for (Exchange at = 0; at < 100; ++at) {
    one.now += 100ms;
    one.feed(HelloReceived{3, 900'000, true, {}});
    one.feed(Trained{});
    one.came(1, at);
    one.feed(Mixed{});
    EXPECT_EQ(one.machine->exchange(), at + 1);
  }
}

// It slept while it waited, and finds many greetings of a liar before anything else.
TEST(ExchangeMachine, AStandstillCountsOnceHoweverMuchComesMeanwhile) {
  OneMachine one("ring", 5, 2);
  const auto exchange = [&](bool sleeps) {
    const Exchange at = one.machine->exchange();
    one.now += 100ms;
    one.feed(Trained{});
    if (sleeps) one.now += 10s;
    for (int i = 0; sleeps && i < 50; ++i) one.feed(HelloReceived{4, 900'000, true, {}});
    one.came(1, at);
    if (!sleeps) one.came(4, at);
    one.feed(Mixed{});
  };
  for (int i = 0; i < 200; ++i) exchange(false);
  exchange(true);
  EXPECT_GE(one.machine->exchange(), 200 + 100U);
  EXPECT_LE(one.machine->exchange(), 200 + 2 * 101 + 5U);
}

// Also one that says a little more each time, as if it went on there.
TEST(ExchangeMachine, WhoIsFarAheadAndNotFollowedIsNamed) {
  OneMachine one("ring", 5, 2);
  for (Exchange at = 0; at < 30; ++at) {
    one.now += 100ms;
    one.feed(HelloReceived{2, 500'000 + 4 * at, true, {}});
    one.feed(Trained{});
    for (const Member from : {1U, 4U}) one.came(from, at);
    one.feed(Mixed{});
  }
  ASSERT_EQ(one.named.size(), 1U);
  EXPECT_LE(one.named.front(), 23U) << "2 s";
  EXPECT_GE(one.named.front(), 20U) << "others may still bear it out";
}

// It was alone and did more exchanges than the others, who do not follow a single one.
class WhoIsFarAhead : public ::testing::Test {
 protected:
  static constexpr Exchange kOurs = 40;

  WhoIsFarAhead() {
    options_.schedule.steps = 1'000'000;
    options_.spread = 2;
    machine_.emplace(options_, **topology_, 0, std::vector<std::string>(5, "node"), kOurs, now_);
    feed(Begin{});
  }
  void feed(Event event) { machine_->on(std::move(event), now_); }
  void came(Member from, Exchange at) { feed(MessageReceived{{from, {.exchange = at}, {}, {}}}); }
  // Its neighbours are at these exchanges, and say so.
  void exchange(Exchange left, Exchange right) {
    now_ += std::chrono::milliseconds(500);
    came(1, left);
    came(4, right);
    feed(Trained{});
    while (machine_->state() == ExchangeMachine::State::kWaiting) {
      now_ = std::max(now_, *machine_->next_deadline());
      feed(Tick{});
    }
    feed(Mixed{});
  }
  // For which it waits now, before it goes on.
  Duration waits() {
    if (machine_->state() != ExchangeMachine::State::kPacing) return Duration::zero();
    const TimePoint since = now_;
    now_ = *machine_->next_deadline();
    feed(Tick{});
    EXPECT_EQ(machine_->state(), ExchangeMachine::State::kTraining);
    return now_ - since;
  }

  Result<std::unique_ptr<const topologies::Topology>> topology_ =
      topologies::Topology::make({.spec = "ring", .nodes = 5});
  ExchangeOptions options_;
  const TimePoint begun_{std::chrono::hours(1)};
  TimePoint now_ = begun_;
  std::optional<ExchangeMachine> machine_;
};

TEST_F(WhoIsFarAhead, WaitsForAsLongAsTheNearestTakesToCome) {
  exchange(20, 25);
  // Twice its work, as it knows no pace yet.
  EXPECT_EQ(waits(), std::chrono::seconds(1) * (kOurs + 1 - 25));
  exchange(kOurs + 1, kOurs + 1);
  EXPECT_EQ(machine_->heard(), 2U);
  EXPECT_EQ(waits(), Duration::zero());
}

TEST_F(WhoIsFarAhead, DoesNotWaitWhereOneIsNear) {
  exchange(20, kOurs - 1);
  EXPECT_EQ(waits(), Duration::zero());
}

TEST_F(WhoIsFarAhead, GoesOnOnceOneIsHere) {
  exchange(20, 25);
  ASSERT_EQ(machine_->state(), ExchangeMachine::State::kPacing);
  now_ += std::chrono::seconds(1);
  came(4, kOurs - 1);
  EXPECT_EQ(machine_->state(), ExchangeMachine::State::kTraining);
}

TEST_F(WhoIsFarAhead, DoesNotWaitOnTheWordOfOneOfTwo) {
  feed(HelloReceived{1, kOurs, true, {}});
  now_ += std::chrono::seconds(1);
  feed(Trained{});
  came(4, 20);
  while (machine_->state() == ExchangeMachine::State::kWaiting) {
    now_ = std::max(now_, *machine_->next_deadline());
    feed(Tick{});
  }
  feed(Mixed{});
  EXPECT_LE(waits(), std::chrono::seconds(1)) << "no longer than where nobody says anything";
}

TEST_F(WhoIsFarAhead, IsHeldUpOnceByThoseWhoNeverCome) {
  exchange(1, 1);
  EXPECT_EQ(waits(), kOurs * std::chrono::seconds(1));
  exchange(1, 1);
  const Duration left = options_.patience_max - kOurs * std::chrono::seconds(1);
  EXPECT_LE(waits(), left + (now_ - begun_) / WaitBudget::kForgiven);
  Duration all{};
  const TimePoint since = now_;
  for (int i = 0; i < 20; ++i) {
    exchange(1, 1);
    const Duration wait = waits();
    EXPECT_LE(wait, std::chrono::seconds(5));
    all += wait;
  }
  EXPECT_LE(all, (now_ - since) / 2);
}

// Its donors' word does not move a peer back to before it lost its quorum.
TEST(ExchangeMachine, WhoTakesAMajoritysModelIsNotThrownToTheBeginning) {
  const auto topology = topologies::Topology::make({.spec = "ring", .nodes = 3});
  ExchangeOptions options;
  options.schedule.steps = 2000;
  for (const auto& [given, then] : {std::pair<Exchange, Exchange>{0, 199}, {205, 205}}) {
    TimePoint now{};
    ExchangeMachine machine(options, **topology, 0, std::vector<std::string>(3, "node"), 0, now);
    const auto feed = [&](Event event) { machine.on(std::move(event), now); };
    const auto exchange = [&](bool with_others) {
      const Exchange at = machine.exchange();
      now += std::chrono::milliseconds(100);
      feed(Trained{});
      for (const Member other : {1U, 2U}) {
        if (with_others) feed(MessageReceived{{other, {.exchange = at}, {}, {}}});
      }
      feed(Mixed{});
      while (machine.state() == ExchangeMachine::State::kPacing) {
        now += std::chrono::milliseconds(100);
        feed(Tick{});
      }
    };
    feed(Begin{});
    for (int i = 0; i < 200; ++i) exchange(true);
    for (const Member other : {1U, 2U}) feed(Reach{other, false});
    for (int i = 0; i < 20; ++i) exchange(false);
    ASSERT_EQ(machine.exchange(), 220U);
    for (const Member other : {1U, 2U}) feed(Reach{other, true});
    now += std::chrono::seconds(2);
    for (const Member other : {1U, 2U}) {
      feed(HelloReceived{other, given, true, {.quorum_seconds = 3600}});
    }
    feed(Trained{});
    now += std::chrono::seconds(10);
    feed(Tick{});
    feed(Mixed{});
    ASSERT_EQ(machine.state(), ExchangeMachine::State::kCopying);
    feed(Copied{given, 2});
    EXPECT_EQ(machine.exchange(), then);
  }
}

// Of three on a ring whose shared state begins anew; what the others say of it is the test's.
class Beginnings : public ::testing::Test {
 protected:
  Beginnings() : topology_(*topologies::Topology::make({.spec = "ring", .nodes = 3})) { start(); }
  void start(ExchangeOptions options = {}, Exchange from = 0) {
    options.schedule.steps = 5000;
    options.loss_safe = false;
    std::vector<std::string> names = {"node", "node", "liar"};
    machine_.emplace(options, *topology_, 0, std::move(names), from, now_);
    restarts_ = 0;
    warnings_.clear();
    feed(Begin{});
  }
  void feed(Event event) {
    for (Action& action : machine_->on(std::move(event), now_)) {
      if (const auto* train = std::get_if<Train>(&action)) {
        restarts_ += train->restart ? 1 : 0;
        plain_ = train->plain;
      }
      if (const auto* announce = std::get_if<Announce>(&action)) {
        announced_ = *announce;
        eras_to_[announce->to] = announce->eras;
      }
      const auto* const say = std::get_if<Say>(&action);
      if (say != nullptr && say->level == LogLevel::kWarning) warnings_.push_back(say->line);
    }
  }
  // Member 2 says this of the shared state (none: as this peer does); `lost`: it says it in its
  // message of the next exchange.
  void exchange(std::optional<std::uint32_t> said, std::uint32_t next_era = 0, bool lost = false) {
    const Exchange at = machine_->exchange();
    now_ += std::chrono::milliseconds(100);
    feed(Trained{});
    feed(MessageReceived{{1, {.exchange = at}, {}, {}}});
    const Exchange of = at + (lost ? 1 : 0);
    const std::uint32_t era = said.value_or(announced_.eras.current);
    feed(MessageReceived{{2, {.exchange = of, .state = protocol::Eras{era, next_era}}, {}, {}}});
    feed(Mixed{});
    while (machine_->state() == ExchangeMachine::State::kPacing) {
      now_ += std::chrono::milliseconds(100);
      feed(Tick{});
    }
  }

  TimePoint now_{};
  std::unique_ptr<const topologies::Topology> topology_;
  std::optional<ExchangeMachine> machine_;
  int restarts_ = 0;
  bool plain_ = false;  // the exchange at work
  std::vector<std::string> warnings_;
  Announce announced_;
  std::map<Member, protocol::Eras> eras_to_;
};

// Else it would mix the messages of those that do not mix its own.
TEST_F(Beginnings, WhoIsLeftOutSharesNoEra) {
  for (int time = 0; time < 3; ++time) {
    exchange({});
    feed(HelloReceived{2, machine_->exchange() + 100, true, {}});
    exchange({});
  }
  exchange({});
  EXPECT_EQ(eras_to_[2], (protocol::Eras{EraPlan::kAlone, 0}));
  EXPECT_NE(eras_to_[1].current, EraPlan::kAlone);
}

// Its sender is where we are, and waits for us.
TEST_F(Beginnings, WhatIsOfAnotherEraHoldsNobodyBack) {
  for (int i = 0; i < 3; ++i) exchange({});
  feed(Reach{1, false});
  feed(Reach{1, true});
  const TimePoint before = now_;
  for (int i = 0; i < 10; ++i) exchange(EraPlan::kAlone);
  EXPECT_EQ(machine_->heard(), 1U);
  EXPECT_EQ(now_ - before, std::chrono::milliseconds(10 * 100));
}

// What it shared is gone with the process before, also where nobody noticed that it was away.
TEST_F(Beginnings, WhoGoesOnFromACheckpointSharesNothingUntilTheNextOne) {
  start({.new_process = true}, 40);
  exchange(0);
  EXPECT_EQ(announced_.eras, (protocol::Eras{EraPlan::kAlone, 42}));
  EXPECT_EQ(machine_->heard(), 0U);
  exchange(EraPlan::kAlone);
  EXPECT_EQ(machine_->heard(), 0U) << "another one that was started again";
  exchange(42);
  EXPECT_EQ(restarts_, 1);
  EXPECT_EQ(machine_->heard(), 1U);
}

// Corrections of who is away are missing until then.
TEST_F(Beginnings, WhereStateCorrectsStepsAllMixWithoutItUntilTheNextOne) {
  start({.corrects_steps = true});
  EXPECT_FALSE(plain_);
  exchange(0, 5);
  EXPECT_TRUE(plain_);
  exchange(3, 5);
  EXPECT_EQ(machine_->heard(), 2U) << "of another era, and without its state too";
  exchange(3, 0);
  EXPECT_EQ(machine_->heard(), 1U);
  while (machine_->exchange() < 5) exchange(0, 5);
  EXPECT_EQ(restarts_, 1);
  EXPECT_FALSE(plain_);
  start({.corrects_steps = false});
  exchange(0, 5);
  EXPECT_FALSE(plain_);
  exchange(3, 5);
  EXPECT_EQ(machine_->heard(), 1U);
}

TEST_F(Beginnings, AreNotAskedForByAnEraThatIsStillToCome) {
  for (int i = 0; i < 50; ++i) exchange(1U << 31);
  EXPECT_EQ(restarts_, 0);
  exchange(50);
  exchange(0);
  exchange(0);
  EXPECT_EQ(restarts_, 1);
}

// 16: eight times as long as a word takes on this ring.
TEST_F(Beginnings, AreRareHoweverOftenAMemberAsksForOne) {
  using Lie = std::function<void(std::uint32_t at)>;
  const std::map<std::string, Lie> lies = {
      {"planned", [this](std::uint32_t at) { exchange(0, at + 1); }},
      {"begun", [this](std::uint32_t at) { exchange(at); }},
      {"both", [this](std::uint32_t at) { exchange(at, at + 1); }},
      {"planned where all may begin",
       [this](std::uint32_t at) { exchange(0, (at / 16 + 1) * 16); }},
      {"comes and goes", [this](std::uint32_t at) { exchange({}, 0, at % 2 == 0); }}};
  for (const auto& [name, lie] : lies) {
    SCOPED_TRACE(name);
    start();
    for (int i = 0; i < 1600; ++i) lie(static_cast<std::uint32_t>(machine_->exchange()));
    EXPECT_LE(restarts_, 4 + 1600 / 16);
    ASSERT_EQ(warnings_.size(), 1U);
    EXPECT_NE(warnings_[0].find("as liar was away or asks"), std::string::npos) << warnings_[0];
  }
}

// Who has seen fewer beginnings plans others. Both meet where all may begin.
TEST_F(Beginnings, AreCommonAlsoWhereSomeSawFewerOfThem) {
  for (std::uint32_t at = 0; at < 40; ++at) exchange(0, at + 1);
  EXPECT_EQ(announced_.eras.next, 48U);
  exchange(0, 43);
  exchange(0, 48);
  EXPECT_EQ(announced_.eras.next, 48U);
  while (machine_->exchange() < 48) exchange(0);
  exchange(43);
  exchange(48);
  EXPECT_EQ(announced_.eras.current, 48U);
}

// A machine whose algorithm shares state along the edges of a ring of five, at work in exchange 0.
struct SharedStateMachine {
  SharedStateMachine() {
    ExchangeOptions options;
    options.loss_safe = false;
    options.schedule.steps = 2000;
    options.spread = 2;
    machine.emplace(options, **topology, 0, std::vector<std::string>(5, "node"), 0, TimePoint{});
    machine->on(Begin{}, TimePoint{});
  }
  void came(Member from, Exchange at, std::uint32_t next_era = 0) {
    machine->on(
        MessageReceived{{from, {.exchange = at, .state = protocol::Eras{0, next_era}}, {}, {}}},
        TimePoint{});
  }
  // Ends the local steps. Returns the beginning that is announced.
  std::uint32_t announced() {
    for (const Action& action : machine->on(Trained{}, TimePoint{})) {
      if (const auto* announce = std::get_if<Announce>(&action)) return announce->eras.next;
    }
    ADD_FAILURE() << "nothing is announced";
    return 0;
  }
  Result<std::unique_ptr<const topologies::Topology>> topology =
      topologies::Topology::make({.spec = "ring", .nodes = 5});
  std::optional<ExchangeMachine> machine;
};

// Else one message would keep this machine from any common beginning until then.
TEST(ExchangeMachine, NobodyPlansABeginningFarAway) {
  SharedStateMachine of;
  of.came(1, 900, 905);
  EXPECT_EQ(of.announced(), 0U);
}

TEST(ExchangeMachine, TheEarliestBeginningIsTheCommonOne) {
  for (const bool earlier_first : {false, true}) {
    SharedStateMachine of;
    of.came(1, 0, earlier_first ? 4 : 9);
    of.came(4, 0, earlier_first ? 9 : 4);
    EXPECT_EQ(of.announced(), 4U);
  }
}

// What it brought is missing at one end of the edge, as if it had not come.
TEST(ExchangeMachine, AfterAMessageThatIsLeftOutAllBeginAnew) {
  for (const bool unsettled : {false, true}) {
    SharedStateMachine of;
    of.came(1, 0);
    of.came(4, 0);
    EXPECT_EQ(of.announced(), 0U);
    of.machine->on(Mixed{.unsettled = unsettled}, TimePoint{});
    EXPECT_EQ(of.announced(), unsettled ? 3U : 0U);
  }
}

// Where state is shared along edges, each time that a neighbour comes or goes it begins anew.
class GoesBack : public ::testing::Test {
 protected:
  GoesBack() {
    options_.loss_safe = false;
    options_.schedule.steps = 2000;
    options_.spread = 2;
    machine_.emplace(options_, **topology_, 0, names_, 0, now_);
    feed(Begin{});
    for (int i = 0; i < 20; ++i) exchange();
  }
  void feed(Event event) {
    for (Action& action : machine_->on(std::move(event), now_)) {
      if (auto* line = std::get_if<Say>(&action)) said_.push_back(std::move(line->line));
      if (auto* mix = std::get_if<Mix>(&action)) heard_of_four_ = mix->inbox.back().has_value();
    }
  }
  void came(Member from, Exchange at) {
    feed(MessageReceived{{from, {.exchange = at, .state = eras_}, {}, {}}});
  }
  void exchange() {
    const Exchange at = machine_->exchange();
    now_ += std::chrono::milliseconds(100);
    for (const Action& action : machine_->on(Trained{}, now_)) {
      if (const auto* announce = std::get_if<Announce>(&action)) eras_ = announce->eras;
    }
    came(1, at);
    came(4, at);
    feed(Mixed{});
  }
  bool is_named() const {
    return std::ranges::any_of(said_, [](const std::string& line) {
      return line.starts_with("four says again and again");
    });
  }

  Result<std::unique_ptr<const topologies::Topology>> topology_ =
      topologies::Topology::make({.spec = "ring", .nodes = 5});
  const std::vector<std::string> names_ = {"we", "one", "two", "three", "four"};
  ExchangeOptions options_;
  TimePoint now_{};
  std::optional<ExchangeMachine> machine_;
  protocol::Eras eras_;
  std::vector<std::string> said_;
  bool heard_of_four_ = false;
};

// The checkpoint that it goes on from is up to half a minute old.
TEST_F(GoesBack, WhoIsStartedAgainIsNoLiar) {
  for (int i = 0; i < 8; ++i) {
    came(4, machine_->exchange() - 15);
    exchange();
    exchange();
  }
  EXPECT_FALSE(is_named());
  EXPECT_TRUE(heard_of_four_);
}

TEST_F(GoesBack, WhoSaysFalselyThatItIsFarAheadIsLeftOutForAWhile) {
  const auto lie = [this] {
    came(4, 1000);
    exchange();
  };
  for (unsigned i = 0; i < ExchangeMachine::kContradictionsMax; ++i) lie();
  EXPECT_FALSE(is_named());
  lie();
  EXPECT_TRUE(is_named());
  exchange();
  EXPECT_FALSE(heard_of_four_);
  const Exchange span = EraPlan(true, options_.spread).span();
  for (Exchange i = 0; i < span; ++i) exchange();
  EXPECT_TRUE(heard_of_four_);
  said_.clear();
  lie();
  EXPECT_FALSE(is_named()) << "what was long ago is forgotten";
}

// Who is waited for long is named: at first, and then ever more seldom.
TEST(ExchangeMachine, WhoIsSlowIsNamedNowAndThen) {
  const auto topology = topologies::Topology::make({.spec = "ring", .nodes = 3});
  ExchangeOptions options;
  options.schedule.steps = 200;
  TimePoint now{};
  ExchangeMachine machine(options, **topology, 0, {"we", "quick", "slow"}, 0, now);
  std::vector<std::string> said;
  const auto feed = [&](Event event) {
    for (Action& action : machine.on(std::move(event), now)) {
      if (auto* line = std::get_if<Say>(&action)) said.push_back(std::move(line->line));
    }
  };
  const auto came = [&](Member from, Exchange at) {
    feed(MessageReceived{{from, {.exchange = at}, {}, {}}});
  };
  feed(Begin{});
  for (Exchange at = 0; at < 100; ++at) {
    feed(Trained{});
    came(1, at);
    now += std::chrono::seconds(20);
    came(2, at);
    feed(Mixed{});
  }
  ASSERT_EQ(said.size(), 6U) << "at 20 s, a minute later, 2, 4, 8 and 16 minutes later";
  EXPECT_EQ(
      said[0],
      "waited 20s for the message of slow, which may have waited for others itself (exchange 0)");
}

// A neighbour on a ring of three that answers "not yet" as long as it is waited for, and then
// sends.
class HoldsUp : public ::testing::Test {
 protected:
  HoldsUp() : topology_(*topologies::Topology::make({.spec = "ring", .nodes = 3})) {
    ExchangeOptions options;
    options.schedule.steps = 1'000'000;
    machine_.emplace(options, *topology_, 0, std::vector<std::string>{"we", "quick", "liar"}, 0,
                     now_);
    feed(HelloReceived{2, 0, true, {}});
    feed(Begin{});
  }
  void feed(Event event) { machine_->on(std::move(event), now_); }
  void came(Member from, Exchange at) { feed(MessageReceived{{from, {.exchange = at}, {}, {}}}); }
  // How long the next exchange waits. `most`: after so long it sends, at the latest.
  double exchange(Duration most = std::chrono::hours(1)) {
    const Exchange at = machine_->exchange();
    now_ += kWork;
    feed(Trained{});
    came(1, at);
    const TimePoint waiting = now_;
    if (most == Duration::zero()) came(2, at);
    while (machine_->state() == ExchangeMachine::State::kWaiting) {
      now_ = std::min(*machine_->next_deadline(), waiting + most);
      feed(Answered{2, at, at, false, {}});
      if (now_ == waiting + most) came(2, at);
      feed(Tick{});
    }
    const double waited = to_seconds(now_ - waiting);
    came(2, at);
    feed(Mixed{});
    return waited;
  }
  // Calm exchanges, for so long.
  void calm(Duration time) {
    for (const TimePoint until = now_ + time; now_ < until;) {
      EXPECT_EQ(exchange(Duration::zero()), 0);
    }
  }

  static constexpr Duration kWork = std::chrono::milliseconds(50);
  TimePoint now_{};
  std::unique_ptr<const topologies::Topology> topology_;
  std::optional<ExchangeMachine> machine_;
};

TEST_F(HoldsUp, TwiceAndThenForATenthOfTheTime) {
  calm(std::chrono::seconds(1));
  EXPECT_EQ(exchange(), 60);
  EXPECT_NEAR(exchange(), 60, 0.1);
  EXPECT_LT(exchange(), 7) << "of what was forgiven meanwhile";
  double waited = 0;
  const TimePoint from = now_;
  while (now_ < from + std::chrono::minutes(20)) waited += exchange();
  EXPECT_LT(waited, 0.12 * to_seconds(now_ - from));
  EXPECT_GT(waited, 0.05 * to_seconds(now_ - from));
  calm(std::chrono::minutes(20));
  EXPECT_EQ(exchange(), 60) << "forgiven";
}

// That its message comes in the end makes no difference.
TEST_F(HoldsUp, NoLongerWhereItSendsJustInTime) {
  for (const double seconds : {55.0, 5.0}) {
    calm(std::chrono::minutes(20));
    double waited = 0;
    const TimePoint from = now_;
    while (now_ < from + std::chrono::minutes(20)) waited += exchange(from_seconds(seconds));
    EXPECT_LT(waited, 120 + 0.12 * to_seconds(now_ - from)) << seconds;
  }
}

// It answers that it is at the first exchange and sends nothing, as a peer does that is started
// again and waits for a model.
TEST_F(HoldsUp, NotOnceItSaysThatItIsFarBehind) {
  calm(std::chrono::seconds(10));
  double waited = 0;
  for (int i = 0; i < 100; ++i) {
    const TimePoint began = now_;
    const Exchange at = machine_->exchange();
    now_ += kWork;
    feed(Trained{});
    came(1, at);
    while (machine_->state() == ExchangeMachine::State::kWaiting) {
      now_ = *machine_->next_deadline();
      feed(Tick{});
      feed(Answered{2, at, 1, false, {}});
    }
    waited += to_seconds(now_ - began - kWork);
    feed(Mixed{});
  }
  EXPECT_LT(waited, 1) << "of one answer";
}

// Its device became slower. That is its pace from now on.
TEST_F(HoldsUp, NotWhereItIsSlowEachTime) {
  calm(std::chrono::seconds(1));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(exchange(std::chrono::seconds(2)), 2) << i;
}

// Where exchanges take hundredths of a second the deadline stays near its least, and whoever is
// silent is waited for once. That it waits makes others wait: as often as there are members at
// most.
TEST(ExchangeMachine, InAPartitionWhoIsSilentIsWaitedForOnce) {
  for (std::uint64_t seed = 0; seed < seeds(24); ++seed) {
    const auto of = world(seed, 700);
    ExchangeNetwork network(of);
    network.after(5, [&] { network.split(static_cast<Member>(of.members / 2), 20); });
    Exchange apart = 0;
    network.after(24.9, [&] { apart = network.exchange(0); });
    ASSERT_EQ(network.run(), "") << seed;
    EXPECT_GT(apart, 300U) << seed;  // both sides went on: 5 s together, some 18 s alone
    EXPECT_EQ(network.wrong_entries(), 0U);
    EXPECT_LE(longest_wait(network), 2 * seconds(of.options.patience_min)) << seed;
    for (const auto& [member, count] : long_waits(network, of.options)) {
      EXPECT_LE(count, static_cast<int>(of.members))
          << seed << " " << of.topology << " member " << member;
    }
    // Together again: all are heard at the end.
    std::set<Member> complete;
    for (const auto& wait : network.waits()) {
      if (wait.exchange >= 690 && wait.complete) complete.insert(wait.member);
    }
    EXPECT_EQ(complete.size(), of.members) << seed;
  }
}

// Neither had a quorum, and what says so from before the partition comes when it is over.
TEST(ExchangeMachine, HalvesThatMeetAgainKeepWhatTheyLearned) {
  for (std::uint64_t seed = 0; seed < seeds(8); ++seed) {
    auto of = world(seed, 300);
    of.members = 8;
    of.work = 0.2;
    ExchangeNetwork network(of);
    network.after(30, [&] { network.split(4, 20); });
    ASSERT_EQ(network.run(), "") << seed;
    EXPECT_EQ(network.copies(), 0U) << seed << " " << of.topology;
  }
}

// Where nothing but the silence tells: a ring, whose two cuts are noticed by who stands at them.
TEST(ExchangeMachine, SilenceCostsOneDeadlineWhateverFailureDetectionSays) {
  for (std::uint64_t seed = 0; seed < seeds(24); seed += 4) {
    auto of = world(seed, 700);
    ASSERT_EQ(of.topology, "ring");
    of.detection = 60;
    ExchangeNetwork network(of);
    network.after(5, [&] { network.split(static_cast<Member>(of.members / 2), 20); });
    Exchange apart = 0;
    network.after(24.9, [&] { apart = network.exchange(0); });
    ASSERT_EQ(network.run(), "") << seed;
    EXPECT_GT(apart, 300U) << seed;
    EXPECT_LE(longest_wait(network), 2 * seconds(of.options.patience_min)) << seed;
  }
}

TEST(ExchangeMachine, WhoIsKilledComesBackAndNobodyWaitsBeyondTheDeadline) {
  for (std::uint64_t seed = 0; seed < seeds(48); ++seed) {
    const auto of = world(seed, 400);
    ExchangeNetwork network(of);
    const double away = 0.1 * static_cast<double>(1 + seed % 50);
    network.after(5, [&] { network.restart(1, away, seed % 3 == 0 ? ~0ULL : seed % 100); });
    ASSERT_EQ(network.run(), "") << seed;
    EXPECT_EQ(network.wrong_entries(), 0U);
    EXPECT_LE(longest_wait(network), 2 * seconds(of.options.patience_min)) << seed;
    // Back within a second, and heard by all, as it hears them.
    const auto late = [&](const auto& wait) { return wait.exchange >= 390 && !wait.complete; };
    EXPECT_EQ(std::ranges::count_if(network.waits(), late), 0) << seed << " " << of.topology;
  }
}

// Three seconds a step are more than the least deadline. It answers that its message is not sent
// yet, and so do those who wait for it: nobody is given up, on any graph.
TEST(ExchangeMachine, ASlowMemberIsWaitedForOnceItsPaceIsKnown) {
  for (std::uint64_t seed = 0; seed < seeds(12); ++seed) {
    auto of = world(seed, 1000);
    of.seconds_max = 4000;
    ExchangeNetwork network(of);
    network.slow(2, 3);
    ASSERT_EQ(network.run(), "") << seed;
    const auto lost = [&](const auto& wait) { return wait.exchange >= 990 && !wait.complete; };
    EXPECT_EQ(std::ranges::count_if(network.waits(), lost), 0) << seed << " " << of.topology;
    for (Member member = 0; member < of.members; ++member) {
      EXPECT_EQ(network.skipped_by(member), 0U) << seed << " " << of.topology;
    }
  }
}

// A loss is known a question and an answer later, and nobody gives up who waits because of one.
TEST(ExchangeMachine, AsManyMessagesAreMixedAsAreNotLost) {
  constexpr std::size_t kMembers = 32;
  constexpr Exchange kSteps = 1000;
  std::map<const char*, std::vector<double>> cases = {{"exponential", {0, 0.1}}};
  if (STARLING_SEED_GROUPS > 1) {
    cases = {{"exponential", {0, 0.001, 0.01, 0.1, 0.2}}, {"one-peer-exponential", {0, 0.1}}};
  }
  for (const auto& [topology, losses] : cases) {
    double calm = 0;
    for (const double loss : losses) {
      auto of = world(1, kSteps);
      of.topology = topology;
      of.members = kMembers;
      of.loss = loss;
      of.options.spread = 5;
      of.options.resent = of.options.held_max = of.options.spread + 1;
      of.options.patience_min = std::chrono::milliseconds(200);
      ExchangeNetwork network(of);
      ASSERT_EQ(network.run(), "") << topology << " " << loss;
      const auto sent = static_cast<double>(network.traffic().messages);
      const double used = static_cast<double>(network.filled_entries()) / sent;
      const double lost = static_cast<double>(network.traffic().lost) / sent;
      if (loss == 0) calm = network.elapsed();
      EXPECT_NEAR(used, 1 - loss, 0.01 * (1 - loss)) << topology << " " << loss;
      EXPECT_LE(network.longest_silence(), 12U) << topology << " " << loss;
      EXPECT_EQ(network.wrong_entries(), 0U);
      EXPECT_EQ(network.copies(), 0U);
      EXPECT_NEAR(lost, loss, 0.25 * loss) << topology << " " << loss;
      EXPECT_LE(network.elapsed(), 5 * calm) << topology << " " << loss;
    }
  }
}

// --- what comes late ----------------------------------------------------------------------------

// One member of four, whose neighbours are played by the test.
class LateMessages {
 public:
  LateMessages(const char* topology, bool loss_safe)
      : topology_(*topologies::Topology::make({.spec = topology, .nodes = 4})),
        machine_(options(loss_safe), *topology_, 0, std::vector<std::string>(4, "node"), 0,
                 TimePoint{}) {
    for (const Member member : {1U, 2U, 3U}) act(HelloReceived{member, 0, true, {}});
    act(Begin{});
    act(Trained{});
  }

  void come(Member from, Exchange exchange) {
    act(MessageReceived{{from, {.exchange = exchange}, {}, {}}});
  }
  // Nobody who has not come is waited for any more; then trains for the next exchange.
  void next() {
    now_ += std::chrono::seconds(20);
    act(Tick{});
    act(Mixed{});
    act(Tick{});
    while (machine_.state() == ExchangeMachine::State::kPacing) {
      now_ += std::chrono::seconds(1);
      act(Tick{});
    }
    act(Trained{});
  }
  // Of this exchange's inbox, of this sender: the exchange whose message it was.
  std::optional<Exchange> mixed(Exchange at, Member from) const {
    for (std::size_t i = 0; i < mixes_[at].size(); ++i) {
      if (mixes_[at][i] && mixes_[at][i]->from == from) return mixes_[at][i]->message.exchange;
    }
    return std::nullopt;
  }
  ExchangeMachine& machine() { return machine_; }

 private:
  static ExchangeOptions options(bool loss_safe) {
    ExchangeOptions options;
    options.schedule.steps = 100;
    options.loss_safe = loss_safe;
    options.spread = 2;
    return options;
  }
  void act(Event event) {
    for (Action& action : machine_.on(std::move(event), now_)) {
      if (auto* mix = std::get_if<Mix>(&action)) mixes_.push_back(std::move(mix->inbox));
    }
  }

  TimePoint now_{};
  std::unique_ptr<const topologies::Topology> topology_;
  ExchangeMachine machine_;
  std::vector<std::vector<std::optional<Arrival>>> mixes_;
};

TEST(ExchangeMachine, WhatComesAfterTheMixingIsMixedAtTheNextOne) {
  LateMessages late("ring", true);
  late.come(1, 0);
  late.next();
  EXPECT_EQ(late.mixed(0, 1), 0U);
  EXPECT_EQ(late.mixed(0, 3), std::nullopt);
  late.come(3, 0);
  late.come(1, 1);
  late.next();
  EXPECT_EQ(late.mixed(1, 3), 0U);
  late.next();
  EXPECT_EQ(late.mixed(2, 3), std::nullopt) << "once";
  EXPECT_FALSE(late.machine().wants(3, 0));
  EXPECT_EQ(late.machine().traffic().arrived, 3U);
  EXPECT_EQ(late.machine().traffic().late, 1U);
  EXPECT_EQ(late.machine().traffic().staleness, 1U);
}

TEST(ExchangeMachine, ANewerMessageTakesThePlaceOfALateOne) {
  LateMessages late("ring", true);
  late.come(1, 0);
  late.next();
  late.come(3, 0);
  late.come(3, 1);
  late.next();
  EXPECT_EQ(late.mixed(1, 3), 1U);
}

TEST(ExchangeMachine, WhatIsTooLateIsNotWanted) {
  LateMessages late("ring", true);
  for (Exchange at = 0; at < kLateExchangesMax; ++at) late.next();
  EXPECT_TRUE(late.machine().wants(3, 0));
  late.next();
  EXPECT_FALSE(late.machine().wants(3, 0));
}

// Its senders are 3 and 2 by turns.
TEST(ExchangeMachine, ALateMessageWaitsForItsSendersNextTurn) {
  LateMessages late("one-peer-exponential", true);
  late.next();
  late.come(3, 0);
  late.next();
  EXPECT_EQ(late.mixed(1, 3), std::nullopt);
  late.next();
  EXPECT_EQ(late.mixed(2, 3), 0U);
}

TEST(ExchangeMachine, AlgorithmsThatShareStateAlongEdgesDoNotMixWhatIsLate) {
  LateMessages late("ring", false);
  late.next();
  EXPECT_FALSE(late.machine().wants(3, 0));
  late.come(3, 0);
  late.next();
  EXPECT_EQ(late.mixed(1, 3), std::nullopt);
}

// As often as it likes, whatever it claims: the others do not leave out what they have to train.
TEST(ExchangeMachine, ALyingGreetingMovesNobody) {
  for (const Exchange claim : {Exchange{1} << 60, Exchange{200}, Exchange{100}}) {
    for (std::uint64_t seed = 0; seed < seeds(8); ++seed) {
      auto of = world(seed, 200);
      of.members = 8;
      ExchangeNetwork network(of);
      for (double when = 2; when < 4; when += 0.05) {
        network.after(when, [&] { network.lie(3, claim); });
      }
      ASSERT_EQ(network.run(), "") << seed;
      EXPECT_EQ(network.copies(), 0U) << seed << " " << of.topology << " claims " << claim;
      EXPECT_GE(network.waits().size(), 8 * 200 * 0.95) << seed << " " << of.topology;
    }
  }
}

// Two that agree are believed as far as they may have come since all were in step: 16 times as fast
// as exchanges go, and a little further.
TEST(ExchangeMachine, TwoLiarsMoveOthersNoFurtherThanTheTimeExplains) {
  constexpr double kLieAt = 4, kLookAt = 4.5;
  constexpr double kPhaseLeast = 0.025;
  for (std::uint64_t seed = 0; seed < seeds(12); ++seed) {
    auto of = world(seed, 10'000);
    of.members = 8;
    of.seconds_max = 5;
    ExchangeNetwork network(of);
    for (double when = kLieAt; when < kLookAt; when += 0.05) {
      for (const Member liar : {3U, 4U}) {
        network.after(when, [&, liar] { network.lie(liar, 10'000); });
      }
    }
    bool has_looked = false;
    network.after(kLookAt, [&] {
      has_looked = true;
      for (Member member = 0; member < 8; ++member) {
        const double honest = kLookAt / kPhaseLeast;
        const double explained = 16 * (kLookAt - kLieAt + 0.1) / kPhaseLeast + 8 + 2 * 8;
        EXPECT_LE(static_cast<double>(network.exchange(member)), honest + explained)
            << seed << " " << of.topology << " member " << member;
      }
    });
    (void)network.run();  // not to the end
    ASSERT_TRUE(has_looked);
  }
}

// Nor where it is the first that anybody hears, sends nothing else, and exchanges take many times
// the training in them: its neighbours hear all of their others in no exchange.
TEST(ExchangeMachine, ALiarThatIsThereFromTheStartMovesNobody) {
  for (const Exchange claim : {Exchange{400}, Exchange{300}, Exchange{40}}) {
    for (std::uint64_t seed = 0; seed < seeds(12); ++seed) {
      auto of = world(seed, 400);
      of.members = 8;
      of.work = 0.002;
      of.latency = 0.1;
      of.seconds_max = 2000;
      ExchangeNetwork network(of);
      network.replace_by_liar(3);
      for (double when = 0.001; when < 60; when += 0.05) {
        network.after(when, [&] { network.lie(3, claim); });
      }
      ASSERT_EQ(network.run(), "") << seed;
      EXPECT_EQ(network.copies(), 0U) << seed << " " << of.topology << " claims " << claim;
      for (Member member = 0; member < 8; ++member) {
        EXPECT_LE(network.skipped_by(member), 20U)
            << seed << " " << of.topology << " claims " << claim << " member " << member;
      }
    }
  }
}

// Who has no neighbour but a liar, from the start, and hears of exchange 2^60 or of the last one
// before it knows what an exchange takes: it goes no faster than four times its own steps allow.
TEST(ExchangeMachine, AnOnlyNeighbourThatLiesDoesNotEndTheRun) {
  for (const Exchange claim : {Exchange{1} << 60, Exchange{1000}, Exchange{999}}) {
    for (std::uint64_t seed = 0; seed < seeds(6); ++seed) {
      auto of = world(seed, 1000);
      of.topology = "star";
      of.members = 5;
      of.options.spread = 2;
      of.seconds_max = 2000;
      ExchangeNetwork network(of);
      network.replace_by_liar(0);
      for (double when = 0.001; when < 60; when += 0.01) {
        network.after(when, [&] { network.lie(0, claim); });
      }
      for (double when = 0.1; when < 5; when += 0.1) {
        network.after(when, [&, when] {
          for (Member leaf = 1; leaf < 5; ++leaf) {
            EXPECT_LE(static_cast<double>(network.exchange(leaf)), 4 * when / 0.025 + 13)
                << seed << " claims " << claim << " at " << when;
          }
        });
      }
      ASSERT_EQ(network.run(), "") << seed;
      // The quickest phase is half of the mean one.
      EXPECT_GE(network.waits().size(), 4 * 1000 / 12U) << seed << " claims " << claim;
    }
  }
}

// Its other neighbour is gone: what it hears of the liar is not passed on as a word of its own that
// a neighbour of both would believe.
TEST(ExchangeMachine, WhatALiarSaysIsNotContagious) {
  for (std::uint64_t seed = 0; seed < seeds(8); ++seed) {
    auto of = world(seed, 600);
    of.topology = "ring";
    of.members = 8;
    of.options.spread = 4;
    of.options.start_patience = std::chrono::milliseconds(500);
    of.seconds_max = 2000;
    ExchangeNetwork network(of);
    network.after(0.0005, [&] { network.die(5); });
    network.replace_by_liar(3);
    for (double when = 0.001; when < 120; when += 0.02) {
      network.after(when, [&] { network.lie(3, 600); });
    }
    ASSERT_EQ(network.run(), "") << seed;
    for (const Member member : {0U, 1U, 6U, 7U}) {
      EXPECT_LE(network.skipped_by(member), 40U) << seed << " member " << member;
    }
  }
}

// One member lies from 5 s on, and does nothing else; something befalls another at 10 s. Where the
// others are after 30 s, as a multiple of what they would have done at the pace before.
std::map<Member, double> advance_beside(Member liar, const std::string& topology, Exchange spread,
                                        const std::function<void(ExchangeNetwork&)>& befalls) {
  ExchangeNetwork::World of{.topology = topology, .members = 8};
  of.options.schedule.steps = 1'000'000;
  of.options.spread = of.options.resent = of.options.held_max = spread;
  of.seconds_max = 30;
  ExchangeNetwork network(of);
  double before = 0;
  network.after(5, [&] {
    before = static_cast<double>(network.exchange(liar));
    network.replace_by_liar(liar);
  });
  for (double when = 5.1; when < 30; when += 0.3) {
    network.after(when, [&] { network.lie(liar, 1'000'000); });
  }
  network.after(10, [&] { befalls(network); });
  (void)network.run();  // not to the end
  std::map<Member, double> advance;
  for (Member member = 0; member < of.members; ++member) {
    if (member == liar) continue;
    advance[member] = static_cast<double>(network.exchange(member)) / (before * 30 / 5);
  }
  return advance;
}

// There everybody may be a neighbour, and whoever it left behind is not gone.
TEST(ExchangeMachine, ALiarMovesNobodyFarWhereEachStepDrawsANewGraph) {
  for (const std::string topology : {"random-matching", "equidyn:eta=0.5,kind=directed"}) {
    const auto sleeps = [](ExchangeNetwork& network) { network.pause(0, 3); };
    for (const auto& [member, advance] : advance_beside(3, topology, 12, sleeps)) {
      EXPECT_LE(advance, 1.2) << topology << " member " << member;
      EXPECT_GE(advance, 0.6) << topology << " member " << member;
    }
  }
}

// The end of the path has only the liar for a neighbour, and is led astray. That it greets another
// neighbour of the liar bears out nothing.
TEST(ExchangeMachine, WhomALiarLedAstrayLeadsNobodyElseAstray) {
  const auto restarts = [](ExchangeNetwork& network) { network.restart(2, 0.3, 1); };
  for (const auto& [member, advance] : advance_beside(1, "path", 14, restarts)) {
    if (member == 0) continue;
    EXPECT_LE(advance, 1.2) << "member " << member;
    EXPECT_GE(advance, 0.6) << "member " << member;
  }
}

// The one between it and the liar has no other neighbour meanwhile, or one that is far behind.
TEST(ExchangeMachine, ALiarMovesNobodyWhileAnotherIsStartedAgain) {
  for (const double away : {0.3, 4.0}) {
    for (const Exchange age : {1U, 400U}) {
      const auto restarts = [&](ExchangeNetwork& network) { network.restart(1, away, age); };
      for (const auto& [member, advance] : advance_beside(3, "ring", 8, restarts)) {
        EXPECT_LE(advance, 1.2) << "member " << member << " " << away << " " << age;
        EXPECT_GE(advance, 0.6) << "member " << member << " " << away << " " << age;
      }
    }
  }
}

// Two neighbours, from checkpoints of other times: each has one neighbour that is further, and is
// with the others at once, as it knows how old the run is.
TEST(ExchangeMachine, NeighboursThatAreStartedAgainTogetherAreWithTheOthersAtOnce) {
  for (const std::string topology : {"ring", "path", "directed-ring"}) {
    for (std::uint64_t seed = 0; seed < seeds(4); ++seed) {
      ExchangeNetwork::World of{.seed = seed, .topology = topology, .members = 6};
      of.options.schedule.steps = 1'000'000;
      of.options.spread = of.options.resent = of.options.held_max = 12;
      of.seconds_max = 27;
      ExchangeNetwork network(of);
      network.after(20, [&] {
        network.restart(0, 3, 200);
        network.restart(1, 3, 400);
      });
      Exchange others = 0;
      network.after(23, [&] { others = network.exchange(3); });
      (void)network.run();  // not to the end
      for (const Member member : {0U, 1U}) {
        EXPECT_GE(network.exchange(member) + of.options.spread, network.exchange(3))
            << topology << " " << seed << " member " << member;
      }
      EXPECT_GT(network.exchange(3), others + 50) << topology << " " << seed;
    }
  }
}

// Each hears one neighbour only, and each is heard by one.
TEST(ExchangeMachine, ALiarOnADirectedRingLeadsNobodyAstray) {
  for (const auto& [member, advance] : advance_beside(3, "directed-ring", 16, [](auto&) {})) {
    EXPECT_LE(advance, 1.6) << "member " << member;  // nobody waits for the liar
    EXPECT_GE(advance, 0.6) << "member " << member;
  }
}

// Nor does who slept there stay behind: the only one that it hears makes up for the time.
TEST(ExchangeMachine, WhoSleptOnADirectedRingIsWithTheOthersAtOnce) {
  for (std::uint64_t seed = 0; seed < seeds(6); ++seed) {
    ExchangeNetwork::World of{.seed = seed, .topology = "directed-ring", .members = 6};
    of.options.schedule.steps = 1'000'000;
    of.options.spread = of.options.resent = of.options.held_max = 12;
    of.seconds_max = 43;
    ExchangeNetwork network(of);
    network.after(20, [&] { network.pause(0, 20); });
    (void)network.run();  // not to the end
    EXPECT_GE(network.exchange(0) + of.options.spread, network.exchange(3)) << seed;
    EXPECT_GE(network.exchange(0), 2000U) << seed;
  }
}

// Nor where links are slow, so that exchanges take many times the training, and a member that was
// just started again knows only how long it trains.
TEST(ExchangeMachine, ALiarMovesNobodyFarWhereLinksAreSlowAndOneIsStartedAgain) {
  for (const std::string topology : {"complete", "random-matching"}) {
    ExchangeNetwork::World of{.topology = topology, .members = 8};
    of.options.schedule.steps = 1'000'000;
    of.options.spread = topology == "complete" ? 2 : 12;
    of.work = 0.001;
    of.latency = 0.05;
    of.seconds_max = 40;
    ExchangeNetwork network(of);
    double before = 0;
    network.after(10, [&] {
      before = static_cast<double>(network.exchange(0));
      network.replace_by_liar(1);
    });
    for (double when = 10.1; when < 40; when += 0.3) {
      network.after(when, [&] { network.lie(1, 1'000'000); });
    }
    network.after(20, [&] { network.restart(2, 0.3, 1); });
    (void)network.run();  // not to the end
    for (Member member = 0; member < of.members; ++member) {
      if (member == 1) continue;
      EXPECT_LE(static_cast<double>(network.exchange(member)), 2.5 * before * 40 / 10)
          << topology << " member " << member;
    }
  }
}

// Whoever comes 10,000 exchanges late is with the others at once, also where only one neighbour can
// tell it where they are.
TEST(ExchangeMachine, WhoComesTenThousandExchangesLateCatchesUp) {
  for (const std::string topology : {"path", "ring", "complete"}) {
    for (std::uint64_t seed = 0; seed < seeds(3); ++seed) {
      auto of = world(seed, 14'000);
      of.topology = topology;
      of.members = 4;
      of.options.spread = 6;
      of.work = 0.01;
      of.seconds_max = 2000;
      ExchangeNetwork network(of);
      network.after(1, [&] { network.restart(0, 170, 1U << 30); });
      Exchange late = 0, others = 0;
      network.after(173, [&] { late = network.exchange(0), others = network.exchange(1); });
      ASSERT_EQ(network.run(), "") << topology << " " << seed;
      EXPECT_GT(others, 10'000U) << topology << " " << seed;
      EXPECT_GE(late + of.options.spread + 1, others) << topology << " " << seed;
    }
  }
}

// A device that starts again within an exchange or two of the others, beside one that never will:
// the whole ring waits for it, so it must not wait as if the network were starting.
TEST(ExchangeMachine, WhoGoesOnFromACheckpointDoesNotWaitForTheDead) {
  for (std::uint64_t seed = 0; seed < seeds(24); ++seed) {
    auto of = world(seed, 400);
    ExchangeNetwork network(of);
    network.after(3, [&] { network.die(2); });
    network.after(15, [&] { network.restart(1, 0.3, 1); });
    ASSERT_EQ(network.run(), "") << seed << " " << of.topology;
    EXPECT_LE(longest_wait(network), 2.5 * seconds(of.options.patience_min))
        << seed << " " << of.topology;
  }
}

// Its own exchanges cost a lone peer the least time; what it does alone is no progress to others.
TEST(ExchangeMachine, WhoIsCutOffDoesNotRunThroughTheExchanges) {
  for (std::uint64_t seed = 0; seed < seeds(8); ++seed) {
    auto of = world(seed, 700);
    of.members = 8;
    of.latency = 0.1;  // alone it need not wait for this
    of.detection = 9;
    of.seconds_max = 2000;
    ExchangeNetwork network(of);
    network.after(20, [&] { network.split(1, 60); });
    Exchange cut_off = 0, others = 0;
    network.after(79.9, [&] { cut_off = network.exchange(0), others = network.exchange(4); });
    ASSERT_EQ(network.run(), "") << seed;
    EXPECT_LE(cut_off, others + others / 4) << seed << " " << of.topology;
    EXPECT_EQ(network.copies_of(0), 1U) << seed << " " << of.topology;
    EXPECT_EQ(network.copies(), 1U) << seed << " " << of.topology;
  }
}

TEST(ExchangeMachine, AnythingMayHappenAndAllFinish) {
  for (std::uint64_t seed = 0; seed < seeds(60); ++seed) {
    auto of = world(seed, 400);
    of.options.loss_safe = seed % 2 == 0;
    ExchangeNetwork network(of);
    Rng rng({.seed = seed, .purpose = Purpose::kNetwork});
    for (int fault = 0; fault < 6; ++fault) {
      const double when = 10 * rng.uniform();
      const auto member = static_cast<Member>(rng.next_u32() % of.members);
      const double away = 4 * rng.uniform();
      if (fault % 3 == 0) {
        network.after(when + 2 * fault, [&network, member, away] { network.split(member, away); });
      } else {
        const Exchange age = rng.next_u32() % 300;
        network.after(when, [&network, member, away, age] { network.restart(member, away, age); });
      }
    }
    ASSERT_EQ(network.run(), "") << seed << " " << of.topology;
    EXPECT_EQ(network.wrong_entries(), 0U) << seed;
    EXPECT_LE(longest_wait(network), seconds(of.options.patience_max)) << seed;
  }
}

}  // namespace
}  // namespace starling::gossip

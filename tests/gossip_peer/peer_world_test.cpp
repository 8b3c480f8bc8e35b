// SPDX-License-Identifier: Apache-2.0
// Whole networks of peers in virtual time: without faults they end with the models of the
// recurrence, and under loss of links, kills, failing disks, wrong clocks and changing rosters
// nobody hangs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <ranges>

#include "gossip/membership/overlay.h"
#include "gossip/peer/held_roster.h"
#include "gossip/peer/link_rules.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/gossip_peer/peer_world.h"
#include "tests/gossip_peer/world_invariants.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::PeerWorld;
using starling::testing::simulated_models;
using ::testing::FloatNear;
using ::testing::Pointwise;

TEST(PeerWorlds, WithoutFaultsTheModelsAreTheRecurrences) {
  for (const char* algorithm : {"dpsgd", "gradient-tracking", "choco", "qg-dsgdm", "sgp", "diloco",
                                "all-reduce", "diloco-all"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network("ring", 4, algorithm), 1, false);
    world.start_all();
    world.publish(world.roster(1));
    if (!world.run_until([&] { return world.all_finished(); }, 1h, "all have finished")) return;
    const auto expected = simulated_models(world.experiment);
    // The members sum in another order where they reduce.
    const bool reduces = std::string_view(algorithm).find("all") != std::string_view::npos;
    for (std::size_t i = 0; i < world.peers.size(); ++i) {
      EXPECT_THAT(world.model(i), Pointwise(FloatNear(reduces ? 1e-5F : 0), expected[i]));
      if (reduces) {
        EXPECT_EQ(world.model(i), world.model(0));
      }
    }
  }
}

// Neighbours in the graph, and two on the cycle of failure detection.
TEST(PeerWorlds, OnARingAPeerHasFourLinks) {
  PeerWorld world(testing::small_network_of_steps(200, "ring", 24), 1);
  world.phase = [] { return std::chrono::milliseconds(100); };
  world.start_all();
  world.publish(world.roster(1));
  const auto far = [&] { return world.peers[0]->shell().report().step >= 100; };
  world.run_until(far, 10min, "a hundred steps are done");
  for (const auto& peer : world.peers) {
    EXPECT_LE(peer->shell().transport().all_up().size(), 4U) << peer->name;
    EXPECT_EQ(peer->shell().report().reachable, 24U) << peer->name;
  }
  for (std::size_t i = 8; i < 24; ++i) world.kill(i);  // a third is left: no quorum
  const auto know = [&] {
    return std::ranges::all_of(std::views::iota(0, 8), [&](int i) {
      return world.peers[i]->shell().report().reachable == 8;
    });
  };
  world.run_until(know, 1min, "those who are left know it");
}

// In each of five epochs another member is missing, so that its neighbours on the ring and on the
// cycle of failure detection have others. What nobody needs any more ends when it is idle: the two
// links of the ring and the two of the cycle are left, which a few members have in common.
TEST(PeerWorlds, LinksThatEpochsLeaveBehindEnd) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 24), 1);
  world.phase = [] { return std::chrono::seconds(1); };
  world.start_all();
  const auto run_for = [&](Duration time) {
    const TimePoint end = world.scheduler.now() + time;
    world.run_until([&] { return world.scheduler.now() >= end; }, 10min, "time has passed");
  };
  std::vector<std::size_t> members;
  identity::Roster roster;
  std::size_t most = 0;
  for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
    members.clear();
    for (std::size_t i = 0; i < 24; ++i) {
      if (i != 4 * epoch) members.push_back(i);
    }
    const auto signed_roster = world.roster(epoch, members);
    roster = signed_roster.roster();
    world.publish(signed_roster);
    run_for(20s);
    for (const std::size_t i : members) {
      most = std::max(most, world.peers[i]->shell().transport().all_up().size());
    }
  }
  EXPECT_GT(most, 4U);
  run_for(kIdleLink + 10s);
  const auto n = static_cast<Member>(members.size());
  for (Member self = 0; self < n; ++self) {
    const membership::Overlay overlay(self, names_of(roster), roster.run_identity(),
                                      {(self + 1) % n, (self + n - 1) % n});
    std::vector<Member> up;
    for (const auto& [member, hello] : world.peers[members[self]]->shell().transport().all_up()) {
      up.push_back(member);
    }
    std::ranges::sort(up);
    EXPECT_EQ(up, overlay.watched([](Member) { return false; })) << roster.members[self].name;
    EXPECT_LE(up.size(), 4U);
  }
}

// In good order: what was learned is kept, and the next process goes on from it.
TEST(PeerWorlds, AStoppedPeerGoesOnFromItsCheckpoint) {
  PeerWorld world(testing::small_network_of_steps(60, "ring", 4), 1);
  world.phase = [] { return std::chrono::milliseconds(100); };
  world.start_all();
  world.publish(world.roster(1));
  const auto step = [&](std::size_t index) { return world.peers[index]->shell().report().step; };
  world.run_until([&] { return step(1) >= 10; }, 1min, "ten steps are done");
  const std::uint64_t before = step(1);
  world.stop(1);
  world.start(1);
  EXPECT_GE(step(1) + 1, before);  // the local phase that was not mixed is lost
  EXPECT_EQ(std::ranges::count_if(
                world.lines,
                [](const auto& line) { return line.find("goes on from exchange") != line.npos; }),
            1);
  world.run_until([&] { return world.all_finished(); }, 10min, "all have finished");
}

// A loss ends an era of the state that neighbours share; messages of different eras are not mixed.
TEST(PeerWorlds, StateAlongTheEdgesBeginsAnewTogetherAfterALoss) {
  for (const std::string algorithm : {"gradient-tracking", "choco", "d2"}) {
    SCOPED_TRACE(algorithm);
    auto options = testing::small_network_of_steps(20'000, "ring", 4, algorithm);
    if (algorithm == "d2") options.topology.mixing = "lazy";
    PeerWorld world(options, 1);
    world.start_all();
    world.publish(world.roster(1));
    const auto step = [&] { return world.peers[0]->shell().report().step; };
    world.run_until([&] { return step() >= 50; }, 1min, "50 steps");
    world.stop(1);
    const std::uint64_t before = step();
    world.run_until([&] { return step() > before + 50; }, 1min, "the others go on");
    world.start(1);
    const auto hear_both = [&] {
      return std::ranges::all_of(
          world.peers, [](const auto& peer) { return peer->shell().report().neighbours == 2; });
    };
    world.run_until(hear_both, 1min, "all hear both neighbours again, in one era");
    EXPECT_FALSE(world.all_finished());
  }
}

// As a suspended laptop: the others go on, and when it goes on itself it finds its timers long due,
// what was sent before its links broke, and a run that is elsewhere.
TEST(PeerWorlds, AFrozenPeerIsBackSoon) {
  for (const char* algorithm : {"dpsgd", "choco", "all-reduce"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(20'000, "complete", 5, algorithm), 1);
    world.phase = [&world] { return std::chrono::milliseconds(50 + world.rng.below(100)); };
    world.start_all();
    world.publish(world.roster(1));
    const auto exchange = [&](std::size_t i) { return world.peers[i]->shell().report().exchange; };
    const auto time_is = [&](Duration time) { return world.scheduler.now() >= TimePoint{} + time; };
    for (const Duration time : {20s, 80s}) world.at(time, [] {});
    world.run_until([&] { return time_is(20s); }, 30s, "it runs");
    world.freeze(2);
    const Exchange before = exchange(2);
    world.run_until([&] { return time_is(80s); }, 2min, "it is frozen");
    EXPECT_EQ(exchange(2), before);
    EXPECT_GT(exchange(0), before + 200) << "the others go on";
    world.thaw(2);
    world.run_until([&] { return exchange(2) + 5 > exchange(0); }, 15s, "it is where they are");
    const auto all_reachable = [&] {
      return std::ranges::all_of(
          world.peers, [](const auto& peer) { return peer->shell().report().reachable == 5; });
    };
    world.run_until(all_reachable, 15s, "all know it");
  }
}

TEST(PeerWorlds, ARevokedSignerLeadsNobodyAway) {
  PeerWorld world(testing::small_network_of_steps(2000, "ring", 4), 1);
  world.start_all();
  const auto all_hold = [&](std::uint64_t epoch) {
    return std::ranges::all_of(world.peers, [epoch](const auto& peer) {
      const EpochSession* session = peer->shell().machine().session();
      return session != nullptr && session->epoch() == epoch;
    });
  };
  using Signer = PeerWorld::Signer;
  world.publish(world.sign(world.roster(1).roster(), Signer::kDeputy));
  world.run_until([&] { return all_hold(1); }, 10s, "a second coordinator counts");
  world.revoke_deputy();
  world.give(3, world.roster(2));
  world.run_until([&] { return all_hold(2); }, 10s, "all hear that it does not any more");
  world.give(0, world.sign(world.roster(3).roster(), Signer::kDeputy));
  world.at(10s, [] {});
  world.run_until([&] { return world.scheduler.now() >= TimePoint{} + 10s; }, 1min, "time passes");
  EXPECT_TRUE(all_hold(2));
  world.give(1, world.roster(4));
  world.run_until([&] { return all_hold(4); }, 10s, "the next one is taken");
}

// Its process runs on with the roster that it has; a liar would too.
TEST(PeerWorlds, NobodySpeaksWithWhoIsExpelled) {
  for (const char* algorithm : {"dpsgd", "all-reduce"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(500, "complete", 5, algorithm), 1);
    world.start_all();
    world.publish(world.roster(1));
    const auto& expelled = world.peers[4];
    world.run_until([&] { return expelled->shell().report().step >= 50; }, 1min, "50 steps");
    // It hears nothing of what follows.
    for (const auto& peer : world.peers) world.network.cut(peer->name, expelled->name);
    for (std::size_t i = 0; i < 4; ++i) world.give(i, world.roster(2, {0, 1, 2, 3}));
    const auto others_finish = [&] {
      return std::ranges::all_of(std::views::iota(0, 4),
                                 [&](int i) { return world.peers[i]->shell().is_finished(); });
    };
    world.at(world.scheduler.now() - TimePoint{} + 5s, [&] {
      for (const auto& peer : world.peers) world.network.mend(peer->name, expelled->name);
    });
    world.run_until(others_finish, 10min, "the others finish");
    EXPECT_EQ(expelled->shell().machine().roster()->epoch, 1U);
    EXPECT_TRUE(expelled->shell().transport().all_up().empty());
  }
}

TEST(PeerWorlds, AStoppedRunEndsEverywhere) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 4), 1);
  world.start_all();
  world.publish(world.roster(1));
  const auto all_are = [&](std::string_view state) {
    return std::ranges::all_of(
        world.peers, [&](const auto& peer) { return peer->shell().report().state == state; });
  };
  world.run_until([&] { return world.peers[0]->shell().report().step > 5; }, 1min, "it runs");
  world.give(2, world.stopped_roster(2));  // the others hear of it
  world.run_until([&] { return all_are("ended"); }, 1min, "all have ended");
}

// Of what is pushed nothing is lost or made, however links break: what an edge holds comes with the
// next message. Without learning the models' mass stays too, to the last bit.
TEST(PeerWorlds, NoMassIsLostWithLinks) {
  for (const char* algorithm : {"push-sum", "sgp"}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", algorithm, seed));
      auto options = testing::small_network_of_steps(60, "exponential", 6, algorithm);
      options.train.train.learning_rate = 0;
      PeerWorld world(options, seed);
      world.phase = [&] { return std::chrono::milliseconds(world.rng.below(500)); };
      world.start_all();
      world.publish(world.roster(1));
      Rng rng({.seed = seed, .purpose = Purpose::kTest, .round = 3});
      for (int second = 1; second < 30; ++second) {
        world.at(std::chrono::seconds(second), [&] {
          const std::string& a = world.peers[rng.below(6)]->name;
          const std::string& b = world.peers[rng.below(6)]->name;
          if (rng.below(2) == 0) return world.network.reset(a, b);
          world.network.cut(a, b);
          world.scheduler.schedule(world.scheduler.now() + std::chrono::seconds(rng.below(4)),
                                   [&world, a, b] { world.network.mend(a, b); });
        });
      }
      std::vector<std::uint64_t> before;
      std::size_t events = 0;
      world.run_until(
          [&] {
            if (++events % 10 > 0) return world.all_finished();
            const std::vector<std::uint64_t> mass = world.invariants().mass();
            if (before.empty()) before = mass;
            return mass != before || world.all_finished();
          },
          1h, "all have finished");
      EXPECT_EQ(world.invariants().mass(), before);
      EXPECT_TRUE(world.invariants().expect_all_mass());
    }
  }
}

struct Silence {
  const char* name;
  std::vector<std::pair<std::size_t, std::size_t>> ways;  // from, to
};

// Links look whole, and nothing passes for a minute. Nobody but those concerned waits for it longer
// than once.
TEST(PeerWorlds, AnAllReduceWaitsForASilentLinkOnce) {
  const std::vector<Silence> silences = {
      {"link of the gatherer", {{0, 1}, {1, 0}}},
      {"link between two others", {{2, 3}, {3, 2}}},
      {"one way to the gatherer", {{1, 0}}},
      {"one way from the gatherer", {{0, 1}}},
      {"one way between two others", {{2, 3}}},
      {"frozen peer", {{2, 0}, {2, 1}, {2, 3}, {2, 4}, {0, 2}, {1, 2}, {3, 2}, {4, 2}}},
      {"frozen gatherer", {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}},
  };
  for (const Silence& silence : silences) {
    SCOPED_TRACE(silence.name);
    PeerWorld world(testing::small_network_of_steps(400, "complete", 5, "all-reduce"), 1);
    world.phase = [&world] { return std::chrono::milliseconds(200 + world.rng.below(300)); };
    world.start_all();
    world.publish(world.roster(1));
    const auto switch_ways = [&](bool cut) {
      for (const auto& [from, to] : silence.ways) {
        const std::string& a = world.peers[from]->name;
        const std::string& b = world.peers[to]->name;
        if (cut) {
          world.network.cut(a, b);
        } else {
          world.network.mend(a, b);
        }
      }
    };
    world.at(20s, [&] { switch_ways(true); });
    world.at(80s, [&] { switch_ways(false); });
    // The most exchanges of any peer that more than half have ended.
    Exchange ended = 0;
    TimePoint since{};
    Duration longest{};
    const auto look = [&] {
      std::vector<Exchange> exchanges;
      for (const auto& peer : world.peers) exchanges.push_back(peer->shell().report().exchange);
      std::ranges::sort(exchanges);
      const Exchange now_ended = exchanges[exchanges.size() / 2];
      if (ended > 0 && now_ended > ended) {
        longest = std::max(longest, world.scheduler.now() - since);
      }
      if (now_ended != ended) since = world.scheduler.now();
      ended = now_ended;
      return world.all_finished();
    };
    if (!world.run_until(look, 1h, "all have finished")) return;
    EXPECT_LT(to_seconds(longest), 5);
    RecordProperty(silence.name, fmt::format("{:.2f}", to_seconds(longest)));
    for (std::size_t i = 1; i < world.peers.size(); ++i) {
      EXPECT_EQ(world.model(i), world.model(0));
    }
  }
}

using Fault = sim::SimulatedDisk::Fault;

// All kinds of protocols, each with a graph that fits.
struct Kind {
  const char* algorithm;
  const char* topology;
};
constexpr Kind kKinds[] = {
    {"dpsgd", "ring"},
    {"dpsgd", "exponential"},
    {"gradient-tracking", "ring"},
    {"choco", "ring"},
    {"sgp", "exponential"},
    {"qg-dsgdm", "complete"},
    {"epidemic", "epidemic:s=2"},
    {"ad-psgd", "path"},
    {"push-sum", "exponential"},
    {"all-reduce", "complete"},
    {"diloco-all", "complete"},
    {"diloco", "ring"},
};

// Injects faults for some time, drawn from a seed.
class Faults {
 public:
  Faults(PeerWorld& world, std::uint64_t seed, Duration until)
      : world_(world), rng_({.seed = seed, .purpose = Purpose::kTest, .round = 1}) {
    for (Duration time = drawn(3s); time < until; time += drawn(6s)) {
      world_.at(time, [this] { inject(); });
    }
  }
  std::uint64_t epoch = 1;                   // of the last roster that was published
  std::optional<std::size_t> expelled = {};  // no member any more
  std::vector<std::size_t> members() const {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < world_.peers.size(); ++i) {
      if (i != expelled) members.push_back(i);
    }
    return members;
  }

 private:
  Duration drawn(Duration most) {
    return Duration(
        static_cast<Duration::rep>(rng_.below(static_cast<std::uint64_t>(most.count()))));
  }
  std::size_t random_peer() { return rng_.below(world_.peers.size()); }
  const std::string& random_name() { return world_.peers[random_peer()]->name; }
  void later(Duration time, std::function<void()> event) {
    world_.scheduler.schedule(world_.scheduler.now() + time, std::move(event));
  }

  void inject() {
    switch (rng_.below(18)) {
      case 0:
      case 1:
        return kill();
      case 2:
        return cut(random_name(), random_name(), drawn(40s));  // one way
      case 3:
        return cut_both(random_name(), random_name(), drawn(40s));
      case 4:
        return isolate();
      case 5:
        return disturb_disk();
      case 6:
        return shift_clock();
      case 7:
        return renew();
      case 8:
        return close();
      case 9:
        return slow_down();
      case 10:
        return renew_for_a_while();
      case 11:
      case 12:
        return freeze();
      case 13:
      case 14:
        return renew_without_some();
      case 15:
        return revoke_signer();
      case 16:
        return expel();
      default:
        return world_.network.reset(random_name(), random_name());
    }
  }
  void kill() {
    const std::size_t victim = random_peer();
    world_.kill(victim);
    later(drawn(10s), [this, victim] {
      if (!world_.peers[victim]->process) world_.start(victim);
    });
  }
  void close() {
    const std::size_t index = random_peer();
    const auto& process = world_.peers[index]->process;
    if (!process || process->closing) return;
    world_.close(index, [this, index] {
      later(drawn(10s), [this, index] {
        if (!world_.peers[index]->process) world_.start(index);
      });
    });
  }
  void slow_down() {
    const auto way = std::pair(random_name(), random_name());
    world_.slow[way] = static_cast<int>(10 + rng_.below(200));
    later(drawn(40s), [this, way] { world_.slow.erase(way); });
  }
  void cut(const std::string& from, const std::string& to, Duration away) {
    world_.network.cut(from, to);
    later(away, [this, from, to] { world_.network.mend(from, to); });
  }
  void cut_both(const std::string& a, const std::string& b, Duration away) {
    cut(a, b, away);
    cut(b, a, away);
  }
  void isolate() {
    const std::string lone = random_name();
    const Duration away = drawn(rng_.below(4) == 0 ? Duration(150s) : Duration(40s));
    for (const auto& peer : world_.peers) cut_both(lone, peer->name, away);
  }
  void disturb_disk() {
    constexpr Fault kFaults[] = {Fault::kFailedSync, Fault::kFull, Fault::kCrashBefore,
                                 Fault::kTornWrite, Fault::kCrashAfter};
    const Fault fault = kFaults[rng_.below(std::size(kFaults))];
    const auto left = std::make_shared<std::uint64_t>(1 + rng_.below(4));
    world_.disturb_disk(random_peer(), [fault, left](const auto&) {
      return *left > 0 && --*left == 0 ? fault : Fault::kNone;
    });
  }
  void shift_clock() {
    const auto off = std::chrono::floor<std::chrono::milliseconds>(drawn(2h));
    world_.peers[random_peer()]->clock.off = off - 1h;
  }
  void freeze() {
    const std::size_t victim = random_peer();
    world_.freeze(victim);
    later(drawn(rng_.below(4) == 0 ? Duration(150s) : Duration(40s)),
          [this, victim] { world_.thaw(victim); });
  }
  // By one of two coordinators.
  identity::SignedRoster renewed(const std::vector<std::size_t>& of) {
    const bool by_deputy = !revoked_ && rng_.below(2) == 0;
    return world_.sign(world_.roster(epoch, of).roster(),
                       by_deputy ? PeerWorld::Signer::kDeputy : PeerWorld::Signer::kIssuer);
  }
  // Another epoch, perhaps not the next: of all, or without one of them.
  void renew() {
    epoch += 1 + (rng_.below(4) == 0 ? rng_.below(5) : 0);
    std::vector<std::size_t> left = members();
    if (rng_.below(2) == 0) std::erase(left, random_peer());
    give_to_most(renewed(left));
  }
  // Some are out, and a while later in again.
  void renew_without_some() {
    ++epoch;
    std::vector<std::size_t> left = members();
    const std::uint64_t out = 1 + rng_.below(left.size() - 3);
    for (std::uint64_t i = 0; i < out; ++i) {
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(rng_.below(left.size())));
    }
    give_to_most(renewed(left));
    later(drawn(30s), [this] {
      ++epoch;
      give_to_most(renewed(members()));
    });
  }
  // Nobody is a member any more until another one comes.
  void renew_for_a_while() { give_to_most(world_.roster(++epoch, members(), 1s + drawn(30s))); }
  // From then on somebody signs with the key, for whom nothing is revoked.
  void revoke_signer() {
    ++epoch;
    if (!std::exchange(revoked_, true)) {
      world_.revoke_deputy();
      return give_to_most(renewed(members()));
    }
    world_.invariants().forged(epoch);
    world_.give(random_peer(),
                world_.sign(world_.roster(epoch, members()).roster(), PeerWorld::Signer::kDeputy));
  }
  // For good; its process goes on, and may not hear of it.
  void expel() {
    if (expelled || world_.peers.size() < 6) return;
    expelled = random_peer();
    ++epoch;
    give_to_most(renewed(members()));
  }
  // Its issuer does not reach everybody.
  void give_to_most(const identity::SignedRoster& roster) {
    for (std::size_t i = 0; i < world_.peers.size(); ++i) {
      if (rng_.below(3) > 0) world_.give(i, roster);
    }
  }

  PeerWorld& world_;
  Rng rng_;
  bool revoked_ = false;  // the deputy's key
};

// All have reduced to one model.
void expect_agreement(const PeerWorld& world, const std::vector<std::size_t>& members) {
  for (const std::size_t i : members) {
    EXPECT_EQ(world.model(i), world.model(members[0])) << world.peers[i]->name << world.status();
  }
}

std::vector<double> mean_model(const PeerWorld& world, const std::vector<std::size_t>& members) {
  std::vector<double> mean(world.experiment.parameters());
  for (const std::size_t i : members) {
    const std::vector<float> model = world.model(i);
    for (std::size_t at = 0; at < model.size(); ++at) {
      mean[at] += static_cast<double>(model[at]) / static_cast<double>(members.size());
    }
  }
  return mean;
}

std::vector<double> mean_of_initial(const PeerWorld& world) {
  std::vector<double> mean(world.experiment.parameters());
  for (std::uint32_t i = 0; i < world.peers.size(); ++i) {
    const std::vector<float> model = world.experiment.initial_of(i);
    for (std::size_t at = 0; at < model.size(); ++at) {
      mean[at] += static_cast<double>(model[at]) / static_cast<double>(world.peers.size());
    }
  }
  return mean;
}

// Mixing has kept them together: nobody is further from the mean model than this part of its norm.
// Twice what 300 seeds came to; of sgp, whose steps a small weight stretches, three times. Who came
// to the last exchange cut off, and heard nobody there, holds what it learned alone.
void expect_consensus(const PeerWorld& world, const std::vector<std::size_t>& members) {
  const std::string_view algorithm = world.experiment.options.algorithm.name;
  const double most = algorithm == "sgp" ? 2 : 0.7;
  const bool in_step = algorithm != "all-reduce" && algorithm != "diloco-all" &&
                       algorithm != "push-sum" && algorithm != "ad-psgd";
  std::vector<std::size_t> together;
  for (const std::size_t i : members) {
    const protocol::PeerReport report = world.peers[i]->shell().report();
    const bool alone = report.expected > 0 && report.neighbours == 0 && in_step;
    if (!alone) together.push_back(i);
  }
  ASSERT_GT(2 * together.size(), members.size()) << world.status();
  const std::vector<double> mean = mean_model(world, together);
  const double norm = std::sqrt(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0));
  for (const std::size_t i : together) {
    const std::vector<float> model = world.model(i);
    double squares = 0;
    for (std::size_t at = 0; at < model.size(); ++at) {
      const double away = static_cast<double>(model[at]) - mean[at];
      squares += away * away;
    }
    EXPECT_LE(std::sqrt(squares), most * norm) << world.peers[i]->name << world.status();
  }
}

// Where nothing is learned, a model is a mean of the initial ones with weights of its own: whatever
// is lost, no value lies outside theirs.
void expect_means_of_the_initial_models(const PeerWorld& world) {
  constexpr float kRounding = 1e-4F;
  std::vector<std::vector<float>> initial;
  for (std::uint32_t i = 0; i < world.peers.size(); ++i) {
    initial.push_back(world.experiment.initial_of(i));
  }
  for (std::size_t i = 0; i < world.peers.size(); ++i) {
    const std::vector<float> model = world.model(i);
    for (std::size_t at = 0; at < model.size(); ++at) {
      const auto value = [at](const auto& of) { return of[at]; };
      const auto [least, most] = std::ranges::minmax(initial | std::views::transform(value));
      ASSERT_TRUE(least - kRounding <= model[at] && model[at] <= most + kRounding)
          << world.peers[i]->name << " has " << model[at] << " in column " << at << ", and "
          << least << " to " << most << " were there" << world.status();
    }
  }
}

// Of one of all kinds of networks.
NetOptions network_of(const Kind& kind, std::uint32_t peers) {
  auto options = testing::small_network_of_steps(120, kind.topology, peers, kind.algorithm);
  if (std::string_view(kind.algorithm).starts_with("diloco")) options.train.train.local_steps = 4;
  return options;
}

// Nothing is learned, and the peers begin apart.
void only_mix(NetOptions& options) {
  options.train.train.learning_rate = 0;
  options.model.initial = "spread=1";
}

// However long computations and frames take, nothing is lost: models are the recurrence's, and
// where there is none, nothing is lost of what the models hold together.
void keep_to_the_algorithm(std::uint64_t seed, const Kind& kind, std::uint32_t peers) {
  auto options = network_of(kind, peers);
  const std::string_view algorithm = kind.algorithm;
  const bool pairs = algorithm == "ad-psgd" || algorithm == "push-sum";
  if (pairs) only_mix(options);
  PeerWorld world(options, seed, pairs);  // a ledger is kept where messages may be lost
  Rng rng({.seed = seed, .purpose = Purpose::kTest, .round = 2});
  world.phase = [&] { return std::chrono::milliseconds(rng.below(1000)); };
  for (std::uint32_t i = 0; i < peers; ++i) {
    const auto way = std::pair(world.peers[rng.below(peers)]->name, world.peers[i]->name);
    world.slow[way] = static_cast<int>(1 + rng.below(100));
  }
  world.start_all();
  world.publish(world.roster(1));
  std::vector<std::uint64_t> mass;
  const auto done = [&] {
    if (mass.empty()) mass = world.invariants().mass();
    return world.all_finished();
  };
  if (!world.run_until(done, 20min, "all have finished")) return;
  if (pairs) {
    EXPECT_EQ(world.invariants().mass(), mass);
    if (algorithm == "push-sum") {
      EXPECT_TRUE(world.invariants().expect_all_mass());
    } else {
      std::vector<std::size_t> all(peers);
      std::iota(all.begin(), all.end(), 0U);
      EXPECT_THAT(mean_model(world, all),
                  Pointwise(::testing::DoubleNear(1e-4), mean_of_initial(world)));
    }
    return;
  }
  const bool reduces = algorithm.find("all") != algorithm.npos;  // sums in another order
  // A slow link may make a member late for a mean, which is then that of the others.
  const bool is_late = std::ranges::any_of(
      world.lines, [](const auto& line) { return line.find(" ended without ") != line.npos; });
  if (reduces && is_late) return;
  const auto expected = simulated_models(world.experiment);
  for (std::size_t i = 0; i < peers; ++i) {
    EXPECT_THAT(world.model(i), Pointwise(FloatNear(reduces ? 1e-4F : 0), expected[i]));
  }
}

// One who holds the newest roster hears of the last one, and passes it on to the others who do.
// Whoever is elsewhere has perhaps no link with a member of it.
void give_last_roster(PeerWorld& world, const identity::SignedRoster& last,
                      const std::vector<std::size_t>& members,
                      const std::optional<std::size_t>& expelled, std::uint64_t first) {
  const auto held_by = [&](std::size_t i) {
    return world.peers[i]->shell().machine().roster().get();
  };
  std::uint64_t newest = 0;
  for (const std::size_t i : members) {
    if (held_by(i) != nullptr) newest = std::max(newest, held_by(i)->epoch);
  }
  bool is_told = false;
  for (std::size_t k = 0; k < members.size(); ++k) {
    const std::size_t i = members[(first + k) % members.size()];
    const identity::Roster* held = held_by(i);
    // Whose roster is over has no links, and hears of another from its issuer alone.
    const bool hears = held != nullptr && held->epoch == newest &&
                       held->expires > held->issued + 1h && held->find(world.peers[i]->name) &&
                       !(expelled && held->find(world.peers[*expelled]->name));
    if (!hears || !std::exchange(is_told, true)) world.give(i, last);
  }
}

// Whatever faults there were: once all peers run, all ways are open and the last roster is known, a
// network finishes.
void survive(std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kTest, .round = 2});
  const Kind kind = kKinds[rng.below(std::size(kKinds))];
  const auto peers = static_cast<std::uint32_t>(5 + rng.below(seed % 10 == 0 ? 12 : 4));
  SCOPED_TRACE(fmt::format("seed {}: {} on {} of {}", seed, kind.algorithm, kind.topology, peers));
  if (seed % 12 == 5) return keep_to_the_algorithm(seed, kind, peers);
  auto options = network_of(kind, peers);
  const std::string_view algorithm = kind.algorithm;
  const bool only_mixes =
      seed % 6 == 1 && algorithm != "choco" && algorithm.find("diloco") == algorithm.npos;
  if (only_mixes) only_mix(options);
  PeerWorld world(options, seed);
  world.phase = [&] { return std::chrono::milliseconds(rng.below(1000)); };
  world.options.patience_max = 20s;
  world.options.checkpoint_every = 5s;
  world.start_all();
  world.publish(world.roster(1));
  constexpr Duration kFaultsUntil = 90s;
  Faults faults(world, seed, kFaultsUntil);
  world.at(kFaultsUntil, [] {});
  const TimePoint end = TimePoint{} + kFaultsUntil;
  world.run_until([&] { return world.scheduler.now() >= end; }, 2 * kFaultsUntil, "time passes");
  world.calm();
  // Who is about to be closed is started afterwards.
  const auto runs = [](const auto& peer) { return !peer->process || !peer->process->closing; };
  world.run_until([&] { return std::ranges::all_of(world.peers, runs); }, 10s, "all have closed");
  for (std::size_t i = 0; i < peers; ++i) {
    if (!world.peers[i]->process) world.start(i);
  }
  const std::vector<std::size_t> members = faults.members();
  const auto last = world.roster(++faults.epoch, members);
  give_last_roster(world, last, members, faults.expelled, rng.below(peers));
  const auto holds_it = [&](std::size_t i) {
    const EpochSession* session = world.peers[i]->shell().machine().session();
    return session != nullptr && session->epoch() == faults.epoch;
  };
  const auto is_finished = [&](std::size_t i) { return world.peers[i]->shell().is_finished(); };
  world.run_until([&] { return std::ranges::all_of(members, holds_it); }, 2min,
                  "all are in the last epoch");
  world.run_until([&] { return std::ranges::all_of(members, is_finished); }, 20min,
                  "all have finished");
  for (const std::size_t i : members) {
    EXPECT_FALSE(world.model(i).empty()) << i;
    EXPECT_TRUE(is_finite(world.model(i))) << i;
  }
  if (faults.expelled) {
    EXPECT_TRUE(world.peers[*faults.expelled]->shell().transport().all_up().empty());
  }
  world.invariants().expect_all_mass();
  if (only_mixes) {
    expect_means_of_the_initial_models(world);
  } else {
    expect_consensus(world, members);
  }
  // Who lost the outer momentum of diloco-all is elsewhere for some exchanges.
  if (algorithm == "all-reduce") expect_agreement(world, members);
}

// Seeds in a process; STARLING_SEEDS=FROM-TO runs others, in the first of them.
constexpr std::uint64_t kSeedsAtATime = 50;

class PeerWorldSeeds : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(PeerWorldSeeds, FinishAfterFaults) {
  std::uint64_t from = GetParam() * kSeedsAtATime + 1;
  std::uint64_t to = from + kSeedsAtATime - 1;
  if (const char* const said = std::getenv("STARLING_SEEDS")) {
    if (GetParam() > 0) GTEST_SKIP() << "the seeds that are asked for run in the first";
    ASSERT_EQ(std::sscanf(said, "%lu-%lu", &from, &to), 2);
  }
  for (std::uint64_t seed = from; seed <= to; ++seed) {
    survive(seed);
    if (HasFailure()) return;  // the first is what its seed repeats
  }
}

INSTANTIATE_TEST_SUITE_P(Hundreds, PeerWorldSeeds, ::testing::Range<std::uint64_t>(0, 6));

}  // namespace
}  // namespace starling::gossip

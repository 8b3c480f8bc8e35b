// SPDX-License-Identifier: Apache-2.0
// One or several of five peers fall silent at once, or one link does, and all links look whole: how
// long a peer stays at one exchange then, in virtual time. STARLING_SEEDS=N runs N seeds of each
// case.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerWorld;

constexpr std::uint64_t kSilentSeedsEveryDay = STARLING_SEED_GROUPS == 1 ? 1 : 3;
constexpr std::size_t kSilentMembers = 5;
constexpr std::size_t kSilentInGroups = 8;
constexpr Duration kSilentFor = std::chrono::seconds(40);

std::uint64_t silent_seeds() {
  const char* const said = std::getenv("STARLING_SEEDS");
  return said == nullptr ? kSilentSeedsEveryDay : std::strtoull(said, nullptr, 10);
}

struct SilentCase {
  const char* algorithm;
  std::size_t silent;  // so many
  bool frozen;         // or they hear each other
  double quorum_max;   // seconds, for members of a quorum
  double few_max;      // for others
  double back_max;     // afterwards, for all
};

// How long peers were at one exchange, local steps included: seconds.
class Stays {
 public:
  explicit Stays(const PeerWorld& world) : world_(world), peers_(world.peers.size()) {}

  void look() {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const Exchange exchange = world_.progress(i).exchange;
      Peer& peer = peers_[i];
      const double stayed = to_seconds(world_.scheduler.now() - peer.since);
      peer.longest = std::max(peer.longest, stayed);
      if (exchange == peer.exchange) continue;
      peer.exchange = exchange;
      peer.since = world_.scheduler.now();
    }
  }
  void forget() {
    for (Peer& peer : peers_) peer = {.exchange = peer.exchange, .since = world_.scheduler.now()};
  }
  double longest(const std::set<std::size_t>& of) const {
    double longest = 0;
    for (const std::size_t i : of) longest = std::max(longest, peers_[i].longest);
    return longest;
  }

 private:
  struct Peer {
    Exchange exchange = 0;
    TimePoint since{};
    double longest = 0;
  };
  const PeerWorld& world_;
  std::vector<Peer> peers_;
};

class Times {
 public:
  void add(double seconds) { times_.push_back(seconds); }
  double most() const { return times_.empty() ? 0 : *std::ranges::max_element(times_); }
  void print(std::string_view whose) {
    if (times_.empty()) return;
    std::ranges::sort(times_);
    fmt::print("{:>28}: median {:5.2f}, most {:5.2f} s\n", whose, times_[times_.size() / 2],
               times_.back());
  }

 private:
  std::vector<double> times_;
};

// It has run for a while.
std::unique_ptr<PeerWorld> running_world(std::size_t members, const char* algorithm,
                                         std::uint64_t seed) {
  auto world = std::make_unique<PeerWorld>(
      testing::small_network_of_steps(100'000, "complete", static_cast<Node>(members), algorithm),
      seed);
  world->phase = [of = world.get()] { return from_seconds(of->rng.uniform(0.1, 0.3)); };
  world->begin();
  world->run_for(std::chrono::seconds(20) + from_seconds(world->rng.uniform()));
  return world;
}

void run_for(PeerWorld& world, Duration time, Stays& stays) {
  const TimePoint end = world.scheduler.now() + time;
  world.scheduler.schedule(end, [] {});
  while (world.scheduler.now() < end) {
    world.run_one();
    stays.look();
  }
}

class SilentPeers : public ::testing::TestWithParam<SilentCase> {};

TEST_P(SilentPeers, AreWaitedForOnce) {
  const SilentCase& of = GetParam();
  Times quorum, few, back;
  for (std::uint64_t seed = 1; seed <= silent_seeds(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto owned = running_world(kSilentMembers, of.algorithm, seed);
    PeerWorld& world = *owned;
    std::set<std::size_t> silent, others;
    while (silent.size() < of.silent) silent.insert(world.rng.below(kSilentMembers));
    for (std::size_t i = 0; i < kSilentMembers; ++i) {
      if (!silent.contains(i)) others.insert(i);
    }
    Stays stays(world);
    stays.forget();
    if (!of.frozen) world.cut_off(silent);
    for (const std::size_t i : silent) {
      if (of.frozen) world.freeze(i);
    }
    run_for(world, kSilentFor, stays);
    (2 * others.size() > kSilentMembers ? quorum : few).add(stays.longest(others));
    if (!of.frozen) (2 * silent.size() > kSilentMembers ? quorum : few).add(stays.longest(silent));
    if (!of.frozen) world.mend(silent);
    for (const std::size_t i : silent) world.thaw(i);
    stays.forget();
    run_for(world, kSilentFor, stays);
    others.merge(silent);
    back.add(stays.longest(others));
  }
  quorum.print("a quorum");
  few.print("no quorum");
  back.print("all, when they are back");
  EXPECT_LE(quorum.most(), of.quorum_max);
  EXPECT_LE(few.most(), of.few_max);
  EXPECT_LE(back.most(), of.back_max);
}

// Of a group's members some wait for one that is silent, and others for those.
TEST(SilentLinks, HoldNobodyUpForLongInGroups) {
  for (const char* algorithm : {"all-reduce:group=2", "all-reduce:group=3", "all-reduce:group=4"}) {
    for (const bool one_way : {false, true}) {
      Times longest;
      for (std::uint64_t seed = 1; seed <= silent_seeds(); ++seed) {
        const auto world = running_world(kSilentInGroups, algorithm, seed);
        const std::size_t a = world->rng.below(kSilentInGroups);
        const std::size_t b = (a + 1 + world->rng.below(kSilentInGroups - 1)) % kSilentInGroups;
        world->network.cut(world->peers[a]->name, world->peers[b]->name);
        if (!one_way) world->network.cut(world->peers[b]->name, world->peers[a]->name);
        Stays stays(*world);
        stays.forget();
        run_for(*world, std::chrono::minutes(1), stays);
        std::set<std::size_t> all;
        for (std::size_t i = 0; i < kSilentInGroups; ++i) all.insert(i);
        longest.add(stays.longest(all));
      }
      longest.print(fmt::format("{}{}", algorithm, one_way ? ", one way" : ""));
      EXPECT_LE(longest.most(), 5.2);
    }
  }
}

// Somewhat above the longest of 40 seeds.
std::vector<SilentCase> silent_cases() {
  std::vector<SilentCase> cases;
  const auto add = [&](const char* algorithm, double quorum_max, double few_max, double back_max) {
    for (const std::size_t silent : {1, 2, 3}) {
      cases.push_back({algorithm, silent, true, quorum_max, few_max, back_max});
    }
    cases.push_back({algorithm, 2, false, quorum_max, few_max, back_max});
  };
  add("all-reduce", 4, 5.5, 4);
  add("diloco-all", 4, 5.5, 4);
  add("all-reduce:group=2", 4.5, 5.5, 4);
  add("all-reduce:group=3", 4.5, 5.5, 4);
  add("dpsgd", 2.7, 2.7, 6);
  add("sgp", 2.7, 2.7, 6);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Protocols, SilentPeers, ::testing::ValuesIn(silent_cases()),
                         [](const auto& instance) {
                           std::string name = fmt::format(
                               "{}_{}_{}", instance.param.algorithm, instance.param.silent,
                               instance.param.frozen ? "frozen" : "cut_off");
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == ':' || c == '='; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// One or two of eight devices lose their cable for a minute, without models: the others neither
// leave out exchanges nor copy, and who is back takes the model of the majority, once.
// STARLING_SEEDS=10000 runs so many seeds (minutes).
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <set>

#include "core/base/rng.h"
#include "tests/gossip_peer/exchange_network.h"

namespace starling::gossip {
namespace {

using exchange::Exchange;
using exchange::Member;
using testing::ExchangeNetwork;

constexpr std::uint64_t kMachineSeedsEveryDay = 40;
constexpr Member kMachineMembers = 8;
constexpr double kPulledAt = 20;   // seconds
constexpr double kPulledFor = 60;  // seconds

std::uint64_t machine_seeds() {
  const char* const said = std::getenv("STARLING_SEEDS");
  return said == nullptr ? kMachineSeedsEveryDay : std::strtoull(said, nullptr, 10);
}

ExchangeNetwork::World cable_world(std::uint64_t seed) {
  static constexpr std::array<const char*, 4> kTopologies = {"ring", "exponential", "complete",
                                                             "one-peer-exponential"};
  ExchangeNetwork::World world{.seed = seed, .topology = kTopologies[seed % kTopologies.size()]};
  const bool mutual = world.topology == "ring" || world.topology == "complete";
  world.members = kMachineMembers;
  world.work = 0.5;
  world.detection = 9;
  world.seconds_max = 1000;
  world.options.schedule.steps = 200;
  world.options.spread = world.topology == "ring" ? 4 : world.topology == "complete" ? 1 : 3;
  world.options.resent = world.options.held_max = mutual ? 2 : world.options.spread + 1;
  return world;
}

std::set<Member> drawn_pulled(std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kNetwork});
  std::set<Member> pulled{static_cast<Member>(rng.below(kMachineMembers))};
  if (rng.below(2) == 1) pulled.insert(static_cast<Member>(rng.below(kMachineMembers)));
  return pulled;
}

// A ring without two that are no neighbours is two halves, which lose touch with each other.
bool falls_apart(const ExchangeNetwork::World& world, const std::set<Member>& pulled) {
  if (world.topology != "ring" || pulled.size() < 2) return false;
  const Member apart = *pulled.rbegin() - *pulled.begin();
  return apart != 1 && apart != kMachineMembers - 1;
}

TEST(CableMachine, ForAMinuteTheMajorityNeitherJumpsNorCopies) {
  for (std::uint64_t seed = 0; seed < machine_seeds() && !HasFailure(); ++seed) {
    const auto of = cable_world(seed);
    const std::set<Member> pulled = drawn_pulled(seed);
    ExchangeNetwork network(of);
    network.after(kPulledAt, [&] { network.pull(pulled, kPulledFor); });
    ASSERT_EQ(network.run(), "") << seed << " " << of.topology;
    for (Member member = 0; member < kMachineMembers; ++member) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << of.topology << ", "
                                        << pulled.size() << " pulled, member " << member);
      if (pulled.contains(member)) {
        EXPECT_EQ(network.copies_of(member), 1U);
        continue;
      }
      EXPECT_EQ(network.copies_of(member), 0U);
      EXPECT_LE(network.skipped_by(member), falls_apart(of, pulled) ? 20U : 0U);
    }
    std::set<Member> complete;
    for (const auto& wait : network.waits()) {
      if (wait.exchange >= 190 && wait.complete) complete.insert(wait.member);
    }
    EXPECT_EQ(complete.size(), of.members) << seed << " " << of.topology;
    EXPECT_EQ(network.wrong_entries(), 0U) << seed;
  }
}

}  // namespace
}  // namespace starling::gossip

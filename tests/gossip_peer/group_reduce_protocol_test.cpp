// SPDX-License-Identifier: Apache-2.0
// Peers that average in drawn groups: with the bits of the recurrence, and when a member is slow,
// is killed, frozen, cut off or started again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gossip/collective/drawn_groups.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::PeerWorld;
using starling::testing::run_of;
using starling::testing::simulated_models;

NetOptions in_groups(std::uint64_t steps, std::uint32_t nodes, std::uint32_t group,
                     std::uint64_t seed = 1) {
  NetOptions options = testing::small_network_of_steps(steps, "ring", nodes,
                                                       fmt::format("all-reduce:group={}", group));
  options.run.seed = seed;
  return options;
}

Exchange exchange_of(const PeerWorld& world, std::size_t i) { return world.progress(i).exchange; }
// By the first peer, within this time.
Exchange ended_in(PeerWorld& world, Duration time) {
  const Exchange before = exchange_of(world, 0);
  world.run_for(time);
  return exchange_of(world, 0) - before;
}

TEST(PeersInGroups, WithoutFaultsHaveTheBitsOfTheRecurrence) {
  for (const auto& [nodes, group] : {std::pair{16U, 4U}, {11U, 4U}, {5U, 8U}, {7U, 2U}}) {
    SCOPED_TRACE(fmt::format("{} in groups of {}", nodes, group));
    PeerWorld world(in_groups(20, nodes, group), 1, false);
    world.phase = [&world] { return std::chrono::milliseconds(1 + world.rng.below(300)); };
    world.start_all();
    world.publish(world.roster(1));
    if (!world.run_until([&] { return world.all_finished(); }, 1h, "all have finished")) return;
    const auto expected = simulated_models(world.experiment);
    EXPECT_EQ(std::ranges::count(expected, expected[0]) == nodes, nodes <= group);
    for (std::size_t i = 0; i < nodes; ++i) EXPECT_EQ(world.model(i), expected[i]) << i;
  }
}

// Nobody is late for anybody, however far those get whom chance does not draw with the slower ones.
TEST(PeersInGroups, WhoIsAheadWithoutAFaultIsNotFollowed) {
  for (const auto& [nodes, group] : {std::pair{6U, 2U}, {9U, 2U}, {9U, 3U}}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(fmt::format("{} in groups of {}, seed {}", nodes, group, seed));
      PeerWorld world(in_groups(1'000, nodes, group, seed), seed);
      world.phase = [&world] {
        return world.rng.below(8) == 0 ? std::chrono::milliseconds(1 + world.rng.below(100)) : 1ms;
      };
      world.start_all();
      world.publish(world.roster(1));
      if (!world.run_until([&] { return world.all_finished(); }, 1h, "all have finished")) return;
      const auto expected = simulated_models(world.experiment);
      for (std::size_t i = 0; i < nodes; ++i) {
        EXPECT_EQ(world.copies_begun(i), 0) << i;
        EXPECT_EQ(world.model(i), expected[i]) << i;
      }
    }
  }
}

// One of 16 takes 20 times as long for a phase. Until it has come, its group is where it was, and
// all others have ended that exchange.
TEST(PeersInGroups, AStragglerDelaysItsGroup) {
  PeerWorld world(in_groups(100'000, 16, 4), 3);
  world.options.patience_min = 10s;
  world.begin();
  constexpr Member kSlow = 5;
  world.run_to_exchange(kSlow, 20);
  world.peers[kSlow]->mixing_time = [] { return 10ms; };
  world.peers[kSlow]->training_time = [] { return 2s; };
  const Exchange at = exchange_of(world, kSlow) + 1;  // whose phase has not begun
  const collective::GroupDraw draw{
      .seed = run_of(world.experiment).plan.seed, .members = 16, .size = 4};
  const std::vector<Member> group = draw.group_of(kSlow, at);
  world.run_to_exchange(kSlow, at);
  world.run_for(900ms);
  ASSERT_EQ(exchange_of(world, kSlow), at);
  for (Member member = 0; member < 16; ++member) {
    const bool is_mate = std::ranges::count(group, member) == 1;
    if (is_mate) {
      EXPECT_EQ(exchange_of(world, member), at) << member;
    } else {
      EXPECT_GT(exchange_of(world, member), at) << member;
    }
  }
}

// A member that takes far longer than the others is behind each time it comes. It copies models, so
// that it is not left further and further behind, also where its exchanges end without any other.
// In between it answers that it is there: that does not make the others wait again and again.
TEST(PeersInGroups, AreNotAsSlowAsTheSlowest) {
  for (const auto& [nodes, group, seconds] :
       {std::tuple{9U, 3U, 5.0}, {9U, 3U, 10.0}, {6U, 2U, 10.0}, {4U, 2U, 2.0}}) {
    Exchange undisturbed = 0;
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(fmt::format("{} in groups of {}, {} s, seed {}", nodes, group, seconds, seed));
      PeerWorld world(in_groups(1'000'000, nodes, group, seed), seed);
      world.phase = [&world] { return from_seconds(world.rng.uniform(0.015, 0.025)); };
      world.begin();
      world.run_to_exchange(0, 20);
      if (undisturbed == 0) undisturbed = ended_in(world, 20s);
      world.peers[nodes / 2]->training_time = [time = from_seconds(seconds)] { return time; };
      world.run_for(120s);  // until all have found that
      const Exchange ended = ended_in(world, 20s);
      EXPECT_GT(ended, undisturbed * (seconds > 2 ? 3 : 2) / 4);
      const double behind = static_cast<double>(exchange_of(world, 0)) -
                            static_cast<double>(exchange_of(world, nodes / 2));
      EXPECT_LT(behind, 4 * seconds / 0.02);
    }
  }
}

// Whoever is ahead alone cannot be believed by the two others, and comes back to them.
TEST(PeersInGroups, ThreeInPairsDoNotPart) {
  for (const double seconds : {1.0, 2.0}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(fmt::format("{} s, seed {}", seconds, seed));
      PeerWorld world(in_groups(1'000'000, 3, 2, seed), seed);
      world.phase = [&world] { return from_seconds(world.rng.uniform(0.015, 0.025)); };
      world.begin();
      world.run_to_exchange(0, 20);
      world.peers[1]->training_time = [time = from_seconds(seconds)] { return time; };
      EXPECT_GT(ended_in(world, 120s), 60 / seconds);
      const auto [least, most] =
          std::minmax({exchange_of(world, 0), exchange_of(world, 1), exchange_of(world, 2)});
      EXPECT_LT(most - least, 4 * seconds / 0.02);
    }
  }
}

// Two of five are not most of them, and are not believed any more once they are far ahead. Whoever
// waits for the slow one in pairs, and copies models meanwhile, has to find out that it is slow.
TEST(PeersInGroups, FiveInPairsDoNotPart) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    PeerWorld world(in_groups(1'000'000, 5, 2, seed), seed);
    world.phase = [&world] { return from_seconds(world.rng.uniform(0.015, 0.025)); };
    world.begin();
    world.run_to_exchange(0, 50);
    world.peers[2]->training_time = [] { return 800ms; };
    EXPECT_GT(ended_in(world, 10min), 4'000U);
    Exchange least = exchange_of(world, 0), most = least;
    for (std::size_t i = 1; i < 5; ++i) {
      least = std::min(least, exchange_of(world, i));
      most = std::max(most, exchange_of(world, i));
    }
    EXPECT_LT(most - least, 200U);
  }
}

// The longest that any peer stays in one exchange, within this time, and while it runs.
Duration longest_stay(PeerWorld& world, Duration time) {
  const TimePoint begun = world.scheduler.now();
  std::vector<std::pair<Exchange, TimePoint>> entered(world.peers.size(), {0, begun});
  Duration longest{};
  while (world.scheduler.now() < begun + time) {
    for (std::size_t i = 0; i < entered.size(); ++i) {
      auto& [exchange, since] = entered[i];
      if (exchange_of(world, i) != exchange || !world.peers[i]->process)
        entered[i] = {exchange_of(world, i), world.scheduler.now()};
      longest = std::max(longest, world.scheduler.now() - since);
    }
    world.run_for(100ms);
  }
  return longest;
}

// Nothing passes between two members, one way or both, whose link looks whole. Each of the two
// waits for the other once and remembers it, whichever groups the seed draws: also where these two
// are a group.
TEST(PeersInGroups, OneHeldLinkIsRemembered) {
  struct Case {
    std::uint32_t nodes, group;
    std::uint64_t seeds;
  };
  for (const auto& [nodes, group, seeds] :
       {Case{9, 3, 8}, {12, 3, 8}, {5, 3, 4}, {8, 3, 4}, {6, 2, 4}}) {
    Exchange undisturbed = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      for (const bool both : {true, false}) {
        SCOPED_TRACE(fmt::format("{} peers in groups of {}, seed {}, {}", nodes, group, seed,
                                 both ? "both ways" : "one way"));
        PeerWorld world(in_groups(100'000, nodes, group, seed), seed);
        world.phase = [&world] { return from_seconds(world.rng.uniform(0.05, 0.1)); };
        world.begin();
        world.run_to_exchange(0, 20);
        if (undisturbed == 0) undisturbed = ended_in(world, 60s);
        world.network.cut(world.peers[1]->name, world.peers[2]->name);
        if (both) world.network.cut(world.peers[2]->name, world.peers[1]->name);
        const Exchange before = exchange_of(world, 0);
        EXPECT_LT(longest_stay(world, 60s), 5s);
        EXPECT_GT(exchange_of(world, 0) - before, undisturbed * 3 / 4);
      }
    }
  }
}

// One member withholds something in each exchange, for as long as the run goes on.
TEST(PeersInGroups, AreNotHeldUpForEver) {
  using protocol::ReduceNote;
  namespace reduce = protocol::reduce;
  struct Lie {
    const char* name;
    std::function<void(PeerWorld&)> tell;
  };
  constexpr std::size_t kLiar = 4;
  const std::vector<Lie> lies = {
      {"none", [](PeerWorld&) {}},
      {"pieces",
       [](PeerWorld& world) {
         world.on_transfer = [](std::size_t from, std::size_t, protocol::VectorTransfer& transfer,
                                SharedBytes&) {
           auto* const piece = std::get_if<protocol::ReducePiece>(&transfer.content);
           if (from == kLiar && piece != nullptr) piece->attempt = 0;
         };
       }},
      {"that it is done",
       [](PeerWorld& world) {
         world.on_reduce_note = [](std::size_t from, const ReduceNote& note) {
           return from != kLiar || !std::holds_alternative<reduce::Done>(note.what);
         };
       }},
      {"registrations",
       [](PeerWorld& world) {
         world.on_reduce_note = [](std::size_t from, ReduceNote& note) {
           const bool registers = std::holds_alternative<reduce::Register>(note.what);
           if (from == kLiar && registers) note.what = reduce::Wait{};
           return true;
         };
       }},
      {"where it is: it says that it is further",
       [](PeerWorld& world) {
         world.on_reduce_note = [](std::size_t from, ReduceNote& note) {
           const bool registers = std::holds_alternative<reduce::Register>(note.what);
           if (from != kLiar || !registers) return true;
           const Exchange further = note.at.exchange + 4;
           note = {.epoch = note.epoch,
                   .at = {.backed = further, .exchange = further},
                   .what = reduce::Ahead{{kLiar}}};
           return true;
         };
       }},
      {"lists",
       [](PeerWorld& world) {
         world.on_reduce_note = [](std::size_t from, const ReduceNote& note) {
           return from != kLiar || (!std::holds_alternative<reduce::List>(note.what) &&
                                    !std::holds_alternative<reduce::Standing>(note.what));
         };
       }},
  };
  Exchange undisturbed = 0;
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    PeerWorld world(in_groups(100'000, 9, 3), 1);
    world.phase = [&world] { return from_seconds(world.rng.uniform(0.1, 0.3)); };
    world.begin();
    world.run_to_exchange(0, 20);
    lie.tell(world);
    world.run_for(150s);  // until all have found who it is
    const Exchange before = exchange_of(world, 0);
    world.run_for(150s);
    const Exchange ended = exchange_of(world, 0) - before;
    if (undisturbed == 0) undisturbed = ended;
    EXPECT_GT(ended, undisturbed * 7 / 10);
    for (std::size_t i = 0; i < 9; ++i) {
      if (i == kLiar) continue;
      for (const std::string& line : world.said(i)) {
        const bool names = line.find("has held up the others") != std::string::npos;
        EXPECT_TRUE(!names || line.find(world.peers[kLiar]->name) != std::string::npos) << line;
      }
    }
  }
}

// Stopped for 5 s of every 10: it costs something as long as it goes on. Afterwards all go on as
// before, and nobody else counts as the cause, for the stopped one either.
TEST(PeersInGroups, WhoIsStoppedNowAndThenBlamesNobody) {
  constexpr std::size_t kStopped = 4;
  for (const auto& [algorithm, lossy] : {std::pair{"all-reduce:group=3", true},
                                         {"all-reduce:group=3", false},
                                         {"all-reduce", true}}) {
    SCOPED_TRACE(fmt::format("{}{}", algorithm, lossy ? "" : ", slow ones are waited for"));
    PeerWorld world(testing::small_network_of_steps(1'000'000, "ring", 6, algorithm), 1, lossy);
    world.phase = [&world] { return from_seconds(world.rng.uniform(0.004, 0.012)); };
    world.begin();
    world.run_to_exchange(0, 50);
    const Exchange undisturbed = ended_in(world, 20s);
    for (int i = 0; i < 9; ++i) {
      world.freeze(kStopped);
      world.run_for(5s);
      world.thaw(kStopped);
      world.run_for(5s);
    }
    EXPECT_GT(ended_in(world, 20s), undisturbed * 8 / 10);
    EXPECT_GT(ended_in(world, 20s), undisturbed * 9 / 10);
    for (std::size_t i = 0; i < world.peers.size(); ++i) {
      for (const std::string& line : world.said(i)) {
        const bool names = line.find("has held up the others") != std::string::npos ||
                           line.find("leaves one attempt after the other") != std::string::npos;
        EXPECT_TRUE(!names || line.find(world.peers[kStopped]->name) != std::string::npos) << line;
      }
    }
  }
}

// It costs the deadline of those that meet it before its death is known, and nothing later.
TEST(PeersInGroups, GoOnWithoutWhoIsKilled) {
  PeerWorld world(in_groups(100'000, 9, 3), 1);
  world.options.patience_min = 50ms;
  world.options.patience_max = 1s;
  world.begin();
  world.run_to_exchange(0, 20);
  world.kill(4);
  const TimePoint killed = world.scheduler.now();
  const Exchange before = exchange_of(world, 0);
  world.run_to_exchange(0, before + 200);
  // A phase and its mixing take 20 ms on average, and eight messages in a row 3 ms each.
  EXPECT_LT(to_seconds(world.scheduler.now() - killed), 200 * 0.12);
  for (std::size_t i = 0; i < 9; ++i) {
    if (i == 4) continue;
    EXPECT_NEAR(static_cast<double>(exchange_of(world, i)), static_cast<double>(before + 200), 8);
    EXPECT_FALSE(world.session(i).support().minority);
  }
}

// These peers lose their disks, and come back after a while. All go on soon: whether one was
// started anew, which others wait for in groups, or most of them, who have a quorum and are behind
// those without one that were there all the time. In a few of a hundred networks a member is waited
// for once.
TEST(PeersInGroups, StandStillShortlyWhereSomeAreStartedAnew) {
  struct Case {
    std::uint32_t nodes;
    std::vector<std::size_t> anew;
  };
  int waits = 0;
  for (const auto& [nodes, anew] : {Case{6, {1}}, {9, {1}}, {5, {0, 1, 3}}}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const Duration away = seed % 2 == 0 ? 1500ms : 3s;
      SCOPED_TRACE(fmt::format("{} of {} anew after {} s, seed {}", anew.size(), nodes,
                               to_seconds(away), seed));
      PeerWorld world(in_groups(100'000, nodes, 3, seed), seed);
      world.phase = [&world] { return std::chrono::milliseconds(5 + world.rng.below(5)); };
      world.begin();
      world.run_to_exchange(0, 300);
      for (const std::size_t i : anew) {
        world.kill(i);
        world.lose_disk(i);
      }
      world.run_for(away);
      for (const std::size_t i : anew) {
        world.start(i);
        world.give(i, world.roster(1));
      }
      const Duration longest = longest_stay(world, 20s);
      EXPECT_LT(longest, 2500ms);
      if (longest >= 1s) ++waits;
      for (std::size_t i = 0; i < nodes; ++i) EXPECT_GT(exchange_of(world, i), 300U) << i;
      EXPECT_GT(ended_in(world, 10s), 200U);
    }
  }
  EXPECT_LE(waits, 2) << "of 24 networks";
}

// What members of a network of short phases send instead of the truth.
struct Liars {
  const char* name;
  std::uint32_t nodes, group, liars;  // these are the last ones; group 0: all are one
  bool one_victim = false;            // else they tell all others
  Exchange ahead = 0;                 // they say that they are so far ahead; 0: they do not
  bool withhold = false;              // they never register, and answer that they are there
  bool behind = false;                // and say that they are behind, as often as ahead
  bool register_ahead = false;        // for that exchange, in place of saying that they are there
  unsigned quarters = 3;              // of the usual pace are left to the others, at least
  bool greet = false;                 // and nothing else, again and again
  bool dial = false;                  // each time over a new link
};

class LiarsInGroups : public ::testing::TestWithParam<Liars> {
 protected:
  using Note = protocol::ReduceNote;

  // Their notes and the models that they give; what they say unasked is told by lie_for().
  void begin_to_lie(PeerWorld& world) {
    world.on_reduce_note = [this, &world](std::size_t from, Note& note) {
      const bool registers = std::holds_alternative<protocol::reduce::Register>(note.what);
      if (GetParam().withhold && is_liar(from) && registers) note.what = protocol::reduce::Wait{};
      if (GetParam().greet && is_liar(from)) return false;
      // An answer to a lie does not reach the liar's machine.
      return is_liar(from) || note.at.exchange <= furthest(world) + 2;
    };
    world.on_transfer = [this](std::size_t from, std::size_t, protocol::VectorTransfer& transfer,
                               SharedBytes&) {
      auto* const columns = std::get_if<protocol::ModelColumns>(&transfer.content);
      if (!is_liar(from) || columns == nullptr || GetParam().ahead == 0) return;
      columns->exchange = claimed_;
      transfer.support = {.minority = false, .backed = claimed_};
    };
  }
  void lie_for(PeerWorld& world, Duration time) {
    const TimePoint end = world.scheduler.now() + time;
    while (world.scheduler.now() < end) {
      if (GetParam().ahead > 0) tell_lies(world);
      world.run_for(20ms);
    }
  }
  bool is_liar(std::size_t i) const { return i >= first_liar_; }
  Exchange furthest(const PeerWorld& world) const {
    Exchange most = 0;
    for (std::size_t i = 0; i < first_liar_; ++i) most = std::max(most, exchange_of(world, i));
    return most;
  }

 private:
  void tell_lies(PeerWorld& world) {
    const auto victims = static_cast<Member>(GetParam().one_victim ? 1 : first_liar_);
    claimed_ = (victims == 1 ? exchange_of(world, 0) : furthest(world)) + GetParam().ahead;
    for (auto liar = static_cast<Member>(first_liar_); liar < GetParam().nodes; ++liar) {
      Note note{.epoch = 1,
                .at = {.backed = claimed_, .exchange = claimed_},
                .attempt = 1,
                .what = protocol::reduce::Ahead{{liar}}};
      if (GetParam().register_ahead) note.what = protocol::reduce::Register{};
      auto& transport = world.peers[liar]->shell().transport();
      for (Member victim = 0; victim < victims; ++victim) {
        if (GetParam().dial && world.scheduler.now() >= dialled_at_[victim] + 300ms) {
          world.network.reset(world.peers[liar]->name, world.peers[victim]->name);
          dialled_at_[victim] = world.scheduler.now();
        }
        if (!transport.is_up(victim)) continue;
        if (GetParam().greet) {
          protocol::PeerHello hello = world.session(0).greeting();
          hello.exchange = claimed_;
          transport.send(victim, hello, {});
          continue;
        }
        transport.send(victim, note, {});
        if (!GetParam().behind) continue;
        const Exchange its = exchange_of(world, victim);
        transport.send(victim, Note{.epoch = 1, .at = {its, its}, .what = protocol::reduce::Wait{}},
                       {});
      }
    }
  }

  const std::size_t first_liar_ = GetParam().nodes - GetParam().liars;
  Exchange claimed_ = 0;
  std::map<Member, TimePoint> dialled_at_;
};

// Neither those who lead others on, whose models bear out what they say, nor those who never come
// and say that they do, hold up the others for long. All others go on, each with its own steps.
TEST_P(LiarsInGroups, AreNotFollowedNorAwaitedForEver) {
  const auto& [nodes, group] = std::pair(GetParam().nodes, GetParam().group);
  PeerWorld world(group > 0
                      ? in_groups(1'000'000, nodes, group)
                      : testing::small_network_of_steps(1'000'000, "ring", nodes, "all-reduce"),
                  1);
  world.phase = [&world] { return from_seconds(world.rng.uniform(0.015, 0.025)); };
  world.begin();
  world.run_to_exchange(0, 20);
  const Exchange undisturbed = ended_in(world, 20s);
  begin_to_lie(world);
  lie_for(world, 120s);  // until all have found that
  std::vector<std::uint64_t> before;
  for (const auto& peer : world.peers) before.push_back(peer->computations);
  lie_for(world, 20s);
  for (std::size_t i = 0; !is_liar(i); ++i) {  // a phase and a mixing are computed each time
    EXPECT_GT((world.peers[i]->computations - before[i]) / 2, undisturbed * GetParam().quarters / 4)
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , LiarsInGroups,
    ::testing::Values(
        Liars{"TwoOfFiveAhead", 5, 3, 2, false, 3}, Liars{"TwoOfNineAhead", 9, 3, 2, false, 3},
        Liars{"TwoAheadOfOne", 9, 3, 2, true, 3}, Liars{"TwoFarAheadOfOne", 5, 3, 2, true, 8},
        Liars{"TwoAheadOfAll", 5, 0, 2, false, 3}, Liars{"TwoAheadOfOneOfAll", 9, 0, 2, true, 3},
        Liars{"OneWhoIsAheadAndWithholds", 5, 3, 1, false, 3, true},
        Liars{"OneWhoIsAheadAndBehind", 5, 3, 1, false, 3, true, true},
        Liars{"OneWhoWithholdsFromFive", 5, 3, 1, false, 0, true},
        Liars{"OneWhoWithholdsInPairs", 6, 2, 1, false, 0, true},
        Liars{"OneWhoOnlyGreets", 6, 2, 1, false, 100'000, false, false, false, 3, true},
        Liars{"OneWhoOnlyDials", 6, 2, 1, false, 100'000, false, false, false, 3, true, true},
        Liars{"OneWhoOnlyGreetsAll", 5, 0, 1, false, 100'000, false, false, false, 3, true},
        Liars{"OneWhoRegistersAhead", 9, 3, 1, false, 3, false, false, true, 2},
        Liars{"TwoWhoRegisterAhead", 5, 3, 2, false, 3, false, false, true, 1}),
    [](const auto& its) { return its.param.name; });

TEST(PeersInGroups, WhoIsStartedAgainComesBack) {
  for (const bool kept : {false, true}) {
    PeerWorld world(in_groups(100'000, 9, 3), 2);
    world.begin();
    world.run_to_exchange(0, 20);
    if (kept) {
      world.stop(4);
    } else {
      world.kill(4);
      world.lose_disk(4);
    }
    world.run_to_exchange(0, 60);
    const TimePoint back = world.scheduler.now();
    world.start(4);
    if (!kept) world.give(4, world.roster(1));
    const auto is_where_they_are = [&] {
      return exchange_of(world, 4) + 3 >= exchange_of(world, 0);
    };
    world.run_until(is_where_they_are, 1min, "it is where they are");
    EXPECT_LT(world.scheduler.now() - back, 5s) << kept;
    EXPECT_GE(world.copies_begun(4), 1);
    const Exchange then = exchange_of(world, 0);
    // It takes part again: its groups hear it.
    const auto hears_all = [&] {
      return world.progress(4).heard == 2 && exchange_of(world, 4) > then + 20;
    };
    world.run_until(hears_all, 1min, "it takes part again");
    EXPECT_TRUE(is_where_they_are());
  }
}

// Links look whole, and nothing passes for a minute; then it is behind, or on its own ahead.
TEST(PeersInGroups, WhoWasCutOffTakesTheModelOfThoseWithAQuorum) {
  PeerWorld world(in_groups(100'000, 8, 4), 3);
  world.phase = [&world] { return std::chrono::milliseconds(50 + world.rng.below(100)); };
  world.begin();
  world.run_to_exchange(0, 50);
  world.cut_off({6, 7});
  world.run_for(50s);
  EXPECT_TRUE(world.session(7).support().minority);
  EXPECT_FALSE(world.session(0).support().minority);
  const double elapsed = static_cast<double>(exchange_of(world, 7));
  EXPECT_LT(elapsed, 1.5 * static_cast<double>(exchange_of(world, 0)));
  world.run_for(10s);
  world.mend({6, 7});
  const int copies = world.copies_begun(6) + world.copies_begun(7);
  world.run_for(30s);
  EXPECT_GT(world.copies_begun(6) + world.copies_begun(7), copies);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_FALSE(world.session(i).support().minority) << i;
    EXPECT_NEAR(static_cast<double>(exchange_of(world, i)),
                static_cast<double>(exchange_of(world, 0)), 5);
    EXPECT_EQ(world.peers[i]->columns_of_minorities, 0U) << i;
  }
}

// A phase that was trained is mixed in the next epoch, by those who are there; that none is trained
// twice, the world's invariants judge.
TEST(PeersInGroups, AnotherEpochGoesOnWithWhatWasTrained) {
  PeerWorld world(in_groups(100'000, 8, 3), 5);
  for (std::size_t i = 0; i < 7; ++i) world.start(i);
  world.publish(world.roster(1, {0, 1, 2, 3, 4, 5, 6}));
  world.run_to_exchange(0, 20);
  world.publish(world.roster(2));
  const TimePoint begun = world.scheduler.now();
  world.run_to_exchange(0, 60);
  EXPECT_LT(world.scheduler.now() - begun, 8s);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(world.peers[i]->shell().machine().session()->epoch(), 2U) << i;
    EXPECT_NEAR(static_cast<double>(exchange_of(world, i)), 60, 5);
  }
}

}  // namespace
}  // namespace starling::gossip

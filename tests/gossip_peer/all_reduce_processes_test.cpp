// SPDX-License-Identifier: Apache-2.0
// All-reduce among real processes over mutual TLS: the mean of whole numbers to the bit, the same
// everywhere; bytes as the closed form says; one process killed in the middle, and the others
// agree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>
#include <numeric>
#include <sstream>

#include "core/base/digest.h"
#include "gossip/collective/reduce_shape.h"
#include "tests/gossip_peer/all_reduce_numbers.h"
#include "tests/gossip_peer/peer_places.h"
#include "tests/support/machine_stopwatch.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temporary_directory.h"

namespace starling::collective {
namespace {

using testing::PeerPlaces;
using testing::Process;
using Indices = std::vector<std::uint32_t>;

constexpr std::uint64_t kFloats = 1'000'003;  // a prime: no segment is as long as the others

struct Outcome {
  Indices members;
  std::string sha256;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

std::string field(const std::string& output, const std::string& name) {
  const std::size_t begin = output.find(name + "=");
  if (begin == std::string::npos) return "";
  const std::size_t from = begin + name.size() + 1;
  return output.substr(from, output.find_first_of(" \n", from) - from);
}

Outcome outcome_of(const std::string& output) {
  Outcome outcome;
  std::istringstream members(field(output, "members"));
  for (std::string one; std::getline(members, one, ',');) {
    outcome.members.push_back(static_cast<std::uint32_t>(std::stoul(one)));
  }
  outcome.sha256 = field(output, "sha256");
  outcome.sent = std::stoull("0" + field(output, "sent"));
  outcome.received = std::stoull("0" + field(output, "received"));
  return outcome;
}

// Added up in integers, divided once.
std::string expected_mean(const Indices& members) {
  std::vector<float> mean(kFloats);
  for (std::uint64_t i = 0; i < kFloats; ++i) {
    int sum = 0;
    for (const std::uint32_t member : members) sum += testing::reduced_number(member, i);
    mean[i] = static_cast<float>(sum) / static_cast<float>(members.size());
  }
  return sha256(as_bytes(std::span<const float>(mean))).hex();
}

Indices everybody(std::uint32_t members) {
  Indices all(members);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

class AllReduceProcesses : public ::testing::Test {
 protected:
  // The processes of `members`; `halted` stops itself when it has sent `halt_at` bytes.
  void start(std::uint32_t members, Shape shape, std::uint32_t halted = 0,
             std::uint64_t halt_at = 0) {
    const PeerPlaces places = testing::make_peer_places(directory_.path(), members);
    for (std::uint32_t member = 0; member < members; ++member) {
      std::vector<std::string> words{
          testing::build_root() / "bin/all_reduce_member", places.peers[member].identity.string(),
          places.roster.string(), shape == Shape::kRing ? "ring" : "tree", std::to_string(kFloats)};
      if (member == halted && halt_at > 0) words.push_back(std::to_string(halt_at));
      processes_.push_back(std::make_unique<Process>(words));
    }
  }
  Process& process(std::uint32_t member) { return *processes_[member]; }

  // What they say when they are done, in order of `members`.
  std::vector<Outcome> outcomes(const Indices& members) {
    std::vector<Outcome> all;
    for (const std::uint32_t member : members) {
      const bool done = process(member).wait_for("finished") && process(member).wait_for("\n");
      EXPECT_TRUE(done) << "member " << member << ":\n" << process(member).output();
      all.push_back(outcome_of(process(member).output()));
    }
    return all;
  }
  void stop(const Indices& members) {
    for (const std::uint32_t member : members) process(member).signal(SIGTERM);
    for (const std::uint32_t member : members) EXPECT_EQ(process(member).wait(), 0);
  }

 private:
  testing::TemporaryDirectory directory_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// --- undisturbed --------------------------------------------------------------------------------

struct Undisturbed {
  Shape shape;
  std::uint32_t members;
};

class AllReduceOfProcesses : public AllReduceProcesses,
                             public ::testing::WithParamInterface<Undisturbed> {};

TEST_P(AllReduceOfProcesses, IsExactIdenticalEverywhereAndAsLargeAsItsClosedForm) {
  const auto [shape, members] = GetParam();
  const Indices all = everybody(members);
  start(members, shape);
  const testing::MachineStopwatch since_start;
  const std::vector<Outcome> ends = outcomes(all);
  EXPECT_LT(since_start.seconds(), 30);
  const std::string mean = expected_mean(all);
  double sent = 0;
  double received = 0;
  for (const std::uint32_t member : all) {
    EXPECT_EQ(ends[member].members, all);
    EXPECT_EQ(ends[member].sha256, mean);
    // Of TLS: handshakes, headers, credit and notes are in it.
    const double closed = 4.0 * static_cast<double>(floats_sent(shape, member, members, kFloats));
    EXPECT_NEAR(static_cast<double>(ends[member].sent), closed, 0.03 * closed);
    sent += static_cast<double>(ends[member].sent);
    received += static_cast<double>(ends[member].received);
  }
  const double closed = 4.0 * 2 * (members - 1) * static_cast<double>(kFloats);
  EXPECT_NEAR(sent, closed, 0.03 * closed);
  EXPECT_NEAR(sent, received, 0.001 * closed);  // a last note may be on its way
  RecordProperty("bytes_over_closed_form", fmt::format("{:.5f}", sent / closed));
  stop(all);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AllReduceOfProcesses,
    ::testing::Values(Undisturbed{Shape::kRing, 2}, Undisturbed{Shape::kRing, 4},
                      Undisturbed{Shape::kRing, 6}, Undisturbed{Shape::kRing, 8},
                      Undisturbed{Shape::kTree, 2}, Undisturbed{Shape::kTree, 4},
                      Undisturbed{Shape::kTree, 6}, Undisturbed{Shape::kTree, 8}),
    [](const auto& instance) {
      return fmt::format("{}Of{}", instance.param.shape == Shape::kRing ? "Ring" : "Tree",
                         instance.param.members);
    });

// --- one is killed ------------------------------------------------------------------------------

struct Killed {
  Shape shape;
  std::uint32_t members;
  std::uint32_t victim;
  double share;   // of what it has to send: then it is killed
  bool too_soon;  // for anybody to hold the mean of all, so it is the survivors' own
};

class AllReduceWithADeath : public AllReduceProcesses,
                            public ::testing::WithParamInterface<Killed> {};

TEST_P(AllReduceWithADeath, SurvivorsAgreeWithinFiveSeconds) {
  const auto [shape, members, victim, share, too_soon] = GetParam();
  const double to_send = 4 * static_cast<double>(floats_sent(shape, victim, members, kFloats));
  start(members, shape, victim, static_cast<std::uint64_t>(share * to_send));
  Indices survivors = everybody(members);
  std::erase(survivors, victim);
  ASSERT_TRUE(process(victim).wait_for("halted")) << process(victim).output();
  process(victim).signal(SIGKILL);
  const testing::MachineStopwatch since_death;
  const std::vector<Outcome> ends = outcomes(survivors);
  EXPECT_LT(since_death.seconds(), 5);
  const Indices named = ends.front().members;
  if (too_soon) {
    EXPECT_EQ(named, survivors);
  } else {  // a mean that somebody holds already stands
    EXPECT_TRUE(named == survivors || named == everybody(members));
  }
  const std::string mean = expected_mean(named);
  for (const Outcome& end : ends) {
    EXPECT_EQ(end.members, named);
    EXPECT_EQ(end.sha256, mean);
  }
  EXPECT_EQ(process(victim).wait(), 128 + SIGKILL);
  stop(survivors);
}

// A member of a ring has sent its partial sums after half of its bytes, and what it has is in
// pieces of a seventh of that or more: at half, its own sum of all may have left it too. A tree's
// root sends nothing before it has the sum, its member 4 of 8 a third of its bytes.
INSTANTIATE_TEST_SUITE_P(
    Deaths, AllReduceWithADeath,
    ::testing::Values(Killed{Shape::kRing, 4, 0, 0.2, true}, Killed{Shape::kRing, 6, 3, 0.35, true},
                      Killed{Shape::kRing, 8, 0, 0.35, true},
                      Killed{Shape::kRing, 8, 0, 0.5, false},
                      Killed{Shape::kRing, 8, 7, 0.8, false}, Killed{Shape::kTree, 8, 4, 0.1, true},
                      Killed{Shape::kTree, 6, 0, 0.2, false},
                      Killed{Shape::kTree, 8, 4, 0.6, false}),
    [](const auto& instance) {
      return fmt::format(
          "{}Of{}Member{}At{}Percent", instance.param.shape == Shape::kRing ? "Ring" : "Tree",
          instance.param.members, instance.param.victim, std::lround(100 * instance.param.share));
    });

}  // namespace
}  // namespace starling::collective

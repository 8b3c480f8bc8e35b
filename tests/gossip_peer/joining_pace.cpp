// SPDX-License-Identifier: Apache-2.0
// How fast a ring of real peers exchanges, over TLS in one process, in calm and while a device
// joins every second that is never started. Ends with 1 where less than half of the calm pace is
// left.
//   joining_pace [PEERS [SECONDS [LOCAL-STEPS [ALGORITHM]]]]
// Run by hand: figures of this machine, not a test.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerCluster;

class JoiningRing {
 public:
  JoiningRing(std::size_t running, std::size_t joins, int local_steps, const std::string& algorithm)
      : cluster_(network(running + joins, local_steps, algorithm), true) {
    cluster_.options.membership = {};
    // Places of newcomers lie between those of the others, which take other places then.
    for (std::size_t i = 0; i < running; ++i) running_.push_back(i * (running + joins) / running);
    for (const std::size_t i : running_) cluster_.start(i);
    for (std::size_t i = 0; i < running + joins; ++i) {
      if (!std::ranges::binary_search(running_, i)) newcomers_.push_back(i);
    }
    members_ = running_;
    cluster_.publish(cluster_.roster(++epoch_, members_));
    cluster_.run_until(
        [&] {
          return std::ranges::all_of(running_, [&](std::size_t i) { return exchange(i) >= 20; });
        },
        "the network has started");
  }

  // Exchanges a second of the slowest peer; `joins`: a device a second joins meanwhile.
  double pace(int seconds, bool joins) {
    const TimePoint began = cluster_.loop.now();
    const std::uint64_t before = slowest();
    for (int second = 0; second < seconds; ++second) {
      if (joins) join();
      const TimePoint until = began + std::chrono::seconds(second + 1);
      cluster_.run_until([&] { return cluster_.loop.now() >= until; }, "a second is over");
    }
    return static_cast<double>(slowest() - before) / to_seconds(cluster_.loop.now() - began);
  }

 private:
  static NetOptions network(std::size_t nodes, int local_steps, const std::string& algorithm) {
    NetOptions options = testing::small_network_of_steps(
        1'000'000'000, "ring", static_cast<std::uint32_t>(nodes), algorithm);
    options.train.train.local_steps = local_steps;
    return options;
  }
  std::uint64_t exchange(std::size_t i) const {
    return cluster_.peers[i]->node->peer().report().exchange;
  }
  std::uint64_t slowest() const {
    std::uint64_t least = exchange(running_.front());
    for (const std::size_t i : running_) least = std::min(least, exchange(i));
    return least;
  }
  void join() {
    const std::size_t newcomer = newcomers_[(7 * joined_++) % newcomers_.size()];
    if (std::ranges::binary_search(members_, newcomer)) return;
    cluster_.peers[newcomer]->port = 1;  // nobody listens
    members_.push_back(newcomer);
    std::ranges::sort(members_);
    cluster_.publish(cluster_.roster(++epoch_, members_));
  }

  PeerCluster cluster_;
  std::vector<std::size_t> running_;
  std::vector<std::size_t> newcomers_;
  std::vector<std::size_t> members_;
  std::size_t joined_ = 0;
  std::uint64_t epoch_ = 0;
};

int measure(int argc, char** argv) {
  const auto number = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  const int running = number(1, 8), seconds = number(2, 30), local_steps = number(3, 100);
  const std::string algorithm = argc > 4 ? argv[4] : "dpsgd";
  JoiningRing ring(static_cast<std::size_t>(running), static_cast<std::size_t>(seconds),
                   local_steps, algorithm);
  const double calm = ring.pace(seconds, false);
  const double joining = ring.pace(seconds, true);
  fmt::print(
      "{}, {} peers, {} local steps: {:.1f} exchanges/s in calm, {:.1f} with a join a second "
      "({:.2f} of it)\n",
      algorithm, running, local_steps, calm, joining, joining / calm);
  return joining >= calm / 2 ? 0 : 1;
}

}  // namespace
}  // namespace starling::gossip

int main(int argc, char** argv) { return starling::gossip::measure(argc, argv); }

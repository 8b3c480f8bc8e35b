// SPDX-License-Identifier: Apache-2.0
// Virtual time of one all-reduce as peers run it (gossip/collective): a word to the gatherer, the
// attempt, the pieces round a ring or along a tree, a word that each is done, and the commit. Every
// word and piece pays latency, jitter and the splits of the network, and what is lost is sent
// again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sim/link_queues.h"
#include "core/sim/network.h"
#include "gossip/collective/reduce_shape.h"
#include "gossip/training/traffic.h"

namespace starling::gossip {

class ReduceClock {
 public:
  struct Member {
    std::uint32_t node = 0;
    double ready = 0;  // its own work is done; after run(): it can go on. Seconds, as the next two.
    double uplink_free = 0;
    double downlink_free = 0;
  };

  // The network must outlive it.
  explicit ReduceClock(const sim::Network& network) : network_(network) {}

  // In ascending order of nodes; the first one gathers.
  void add(std::uint32_t node, double ready, double uplink_free, double downlink_free);
  // The attempt does not begin before this, seconds.
  void gatherer_waits_until(double time);
  // Everybody gets the mean of `bytes`. `exchange`: the number of this all-reduce. Returns what it
  // cost: pieces, since words take no time on a link.
  Traffic run(std::uint64_t bytes, std::uint64_t exchange);
  std::span<const Member> members() const { return members_; }

 private:
  double word(std::size_t from, std::size_t to, double time);
  double send(std::size_t from, std::size_t to, std::uint64_t floats, double time);
  double receive(std::size_t to, std::uint64_t floats, double reaches);
  void hear_all();
  void tell_all();
  void ring(std::uint64_t floats);
  void tree(std::uint64_t floats);
  void climb(std::size_t member, std::uint64_t floats, std::vector<double>& reaches_parent);
  void descend(std::size_t member, std::uint64_t floats);

  const sim::Network& network_;
  sim::LinkQueues queues_;
  std::vector<Member> members_;
  double gatherer_begins_ = 0;
  std::uint64_t number_ = 0;  // of the words or pieces at work, at most one from node to node
  Traffic traffic_;
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/step_clock.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "gossip/simulation/parallel.h"

namespace starling::gossip {
namespace {

// Nodes whose messages one job works on.
constexpr std::size_t kNodesPerJob = 256;

// When it is the receiver's turn, from 0: a node begins with those above itself, so that on a ring,
// say, no two neighbours send to the same node at once.
std::size_t turn_of(std::span<const topologies::Weight> receivers, Node from, Node to) {
  const auto place = [&](Node node) {
    return static_cast<std::size_t>(
        std::ranges::lower_bound(receivers, node, {}, &topologies::Weight::node) -
        receivers.begin());
  };
  const std::size_t size = receivers.size();
  return (place(to) + size - place(from)) % size;
}

}  // namespace

StepClock::StepClock(const sim::Network& network, const sim::Population& population, Node nodes,
                     bool lossy)
    : network_(network),
      population_(population),
      lossy_(lossy),
      nodes_(nodes),
      departs_(nodes),
      first_entry_(nodes) {
  for (Node node = 0; node < nodes; ++node) {
    State& state = nodes_[node];
    state.ready = population.up_from(node, 0);
    // Who is there from the start needs nobody's model.
    state.present = state.ready == 0;
    state.known_away = !state.present;
  }
}

// The earliest time at which somebody goes on; where nobody is there, when the first comes back.
double StepClock::front() const {
  double present = sim::kNever;
  double away = sim::kNever;
  for (const State& state : nodes_) {
    double& earliest = state.present ? present : away;
    earliest = std::min(earliest, state.ready);
  }
  return present < sim::kNever ? present : away;
}

bool StepClock::begin(std::uint64_t step, int steps) {
  const double front = this->front();
  if (front == sim::kNever) return false;
  front_ = front;
  present_count_ = 0;
  for (Node node = 0; node < nodes_.size(); ++node) {
    State& state = nodes_[node];
    state.known_away = !state.present;
    state.returns = !state.present && state.ready <= front;
    if (!state.present && !state.returns) continue;
    state.started = state.returns ? front : state.ready;
    state.finished = state.started;
    for (int k = 0; k < steps; ++k) {
      state.finished += population_.step_seconds(node, step + static_cast<std::uint64_t>(k));
    }
    const double gone = population_.up_until(node, state.started);
    state.present = gone > state.finished;
    if (state.present) {
      ++present_count_;
    } else {
      state.returns = false;
      state.ready = population_.up_from(node, gone);
      state.patience = {};
    }
  }
  return true;
}

void StepClock::catch_up(Node node, Node donor, std::uint64_t bytes) {
  State& state = nodes_[node];
  const double seconds =
      network_.latency(donor, node) +
      std::max(network_.transfer_seconds(donor, bytes), network_.transfer_seconds(node, bytes));
  state.started += seconds;
  state.finished += seconds;
  bytes_sent_ += bytes;
  ++messages_;
}

void StepClock::exchange(const topologies::MixingMatrix& matrix,
                         const std::vector<std::uint64_t>& bytes, const Sending& sending,
                         ComputePool& pool) {
  came_.resize(matrix.messages());
  std::uint64_t entries = 0;
  for (Node node = 0; node < nodes_.size(); ++node) {
    State& state = nodes_[node];
    first_entry_[node] = entries;
    entries += matrix.senders(node).size();
    if (!state.present) continue;
    const double from = sending.before_training ? state.started : state.finished;
    departs_[node] = std::max(from, state.uplink_free);
    const auto receivers = static_cast<double>(matrix.receivers(node).size());
    state.uplink_free = departs_[node] + receivers * network_.transfer_seconds(node, bytes[node]);
    messages_ += matrix.receivers(node).size();
    bytes_sent_ += matrix.receivers(node).size() * bytes[node];
  }
  for_each_in(pool, nodes_.size(), kNodesPerJob, [&](std::size_t node, unsigned) {
    receive(matrix, bytes, sending.exchange, static_cast<Node>(node), first_entry_[node]);
  });
}

// What is on its way to `node`, by the time at which its link could be through with it. False: some
// of it will never come.
bool StepClock::arrivals(const topologies::MixingMatrix& matrix,
                         const std::vector<std::uint64_t>& bytes, std::uint64_t exchange, Node node,
                         std::vector<Arrival>& arrivals) const {
  arrivals.clear();
  bool complete = true;
  const auto senders = matrix.senders(node);
  for (std::size_t k = 0; k < senders.size(); ++k) {
    const Node from = senders[k].node;
    if (!nodes_[from].present) {
      complete = complete && nodes_[from].known_away;
      continue;
    }
    const auto turn = static_cast<double>(turn_of(matrix.receivers(from), from, node) + 1);
    const double sent = departs_[from] + turn * network_.transfer_seconds(from, bytes[from]);
    const sim::Network::Passage passage = network_.pass(from, node, exchange, sent);
    complete = complete && !passage.lost;
    if (!passage.lost) arrivals.push_back({sent + passage.seconds, k});
  }
  std::ranges::sort(arrivals);
  return complete;
}

// A node sends to its receivers one after the other, as its link allows; at the other end messages
// pass the receiver's link in the order of their arrival.
void StepClock::receive(const topologies::MixingMatrix& matrix,
                        const std::vector<std::uint64_t>& bytes, std::uint64_t exchange, Node node,
                        std::uint64_t first_entry) {
  State& state = nodes_[node];
  const auto senders = matrix.senders(node);
  std::fill_n(came_.begin() + static_cast<std::ptrdiff_t>(first_entry), senders.size(), 0);
  if (!state.present) return;
  thread_local std::vector<Arrival> coming;
  bool missing = !arrivals(matrix, bytes, exchange, node, coming);
  const double deadline = network_.deadline();
  const double work = state.finished - state.started;
  const double limit = lossy_ ? state.finished + state.patience.seconds(work, deadline)
                              : std::numeric_limits<double>::infinity();
  double last = state.finished;
  double link_free = 0;
  double heard = -1;
  for (const Arrival& arrival : coming) {
    const Node from = senders[arrival.index].node;
    const double transfer = network_.transfer_seconds(node, bytes[from]);
    const double slower = std::max(0.0, transfer - network_.transfer_seconds(from, bytes[from]));
    // The link works on a message while it comes in: what makes it late is another one before it,
    // or a link that is slower than the sender's.
    link_free = std::max(arrival.time + slower, link_free + transfer);
    const double waited = std::max(link_free - state.finished, 0.0);
    if (link_free > limit) {
      missing = true;
      // What comes too late teaches how long the network takes, unless nobody would wait so long.
      // How late its sender was does not count: everybody's waiting would make everybody wait.
      const double travelled = std::min(waited, link_free - departs_[from]);
      if (travelled <= deadline) heard = std::max(heard, travelled);
      continue;
    }
    heard = std::max(heard, waited);
    came_[first_entry + arrival.index] = 1;
    last = std::max(last, link_free);
  }
  if (heard >= 0) state.patience.learn(heard);
  state.ready = missing && lossy_ ? limit : last;
}

void StepClock::all_reduce(std::uint64_t bytes) {
  double start = 0;
  double hop = 0;
  double slowest = std::numeric_limits<double>::infinity();
  Node previous = 0;
  Node first = 0;
  std::uint64_t count = 0;
  for (Node node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].present) continue;
    if (count == 0) first = node;
    if (count > 0) hop = std::max(hop, network_.latency(previous, node));
    start = std::max(start, nodes_[node].finished);
    slowest = std::min(slowest, network_.bandwidth(node));
    previous = node;
    ++count;
  }
  if (count > 1) hop = std::max(hop, network_.latency(previous, first));
  double end = start;
  if (count > 1) {
    const auto peers = static_cast<double>(count);
    const double volume = 2 * (peers - 1) / peers * static_cast<double>(bytes);
    const double hops =
        std::min(2 * (peers - 1), 2.0 * static_cast<double>(std::bit_width(count - 1)));
    end = start + hops * hop + volume / slowest;
    bytes_sent_ += static_cast<std::uint64_t>(volume * peers);
    messages_ += 2 * (count - 1) * count;
  }
  for (State& state : nodes_) {
    if (state.present) state.ready = end;
  }
}

double StepClock::now() const {
  double latest = front_;
  for (const State& state : nodes_) {
    if (state.present) latest = std::max(latest, state.ready);
  }
  return latest;
}

}  // namespace starling::gossip

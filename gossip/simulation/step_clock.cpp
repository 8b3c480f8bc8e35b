// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/step_clock.h"

#include <algorithm>

#include "gossip/simulation/parallel.h"
#include "gossip/simulation/reduce_clock.h"

namespace starling::gossip {
namespace {

// Nodes whose messages one job works on.
constexpr std::size_t kNodesPerJob = 256;

// Places of receivers in the order in which a node sends: it begins with those above itself, so
// that on a ring, say, no two neighbours send to the same node at once.
std::size_t turn_of(std::span<const topologies::Weight> receivers, Node from, std::size_t place) {
  const auto above = std::ranges::lower_bound(receivers, from, {}, &topologies::Weight::node);
  const auto first = static_cast<std::size_t>(above - receivers.begin());
  return (place + receivers.size() - first) % receivers.size();
}

std::size_t place_of(std::span<const topologies::Weight> receivers, Node node) {
  const auto found = std::ranges::lower_bound(receivers, node, {}, &topologies::Weight::node);
  return static_cast<std::size_t>(found - receivers.begin());
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
      state.gone = gone;
      state.ready = population_.up_from(node, gone);
      traffic_.lost += state.late.size();
      state.late.clear();
    }
  }
  return true;
}

void StepClock::catch_up(Node node, Node donor, std::uint64_t bytes) {
  State& state = nodes_[node];
  const double seconds =
      network_.latency(donor, node, state.started) +
      std::max(network_.transfer_seconds(donor, bytes), network_.transfer_seconds(node, bytes));
  state.started += seconds;
  state.finished += seconds;
  traffic_ += {.messages = 1, .bytes_sent = bytes, .arrived = 1};
}

void StepClock::exchange(const topologies::MixingMatrix& matrix,
                         const std::vector<std::uint64_t>& bytes, const Sending& sending,
                         ComputePool& pool) {
  heard_.assign(matrix.messages(), kNothing);
  std::uint64_t entries = 0;
  for (Node node = 0; node < nodes_.size(); ++node) {
    first_entry_[node] = entries;
    entries += matrix.senders(node).size();
  }
  for_each_in(pool, nodes_.size(), kNodesPerJob, [&](std::size_t node, unsigned) {
    send(matrix, bytes[node], sending, static_cast<Node>(node));
  });
  for_each_in(pool, nodes_.size(), kNodesPerJob, [&](std::size_t node, unsigned) {
    receive(matrix, bytes, sending.exchange, static_cast<Node>(node));
  });
  for (const State& state : nodes_) traffic_ += state.traffic;
}

// A node sends to its receivers one after the other, as its link allows, and then again what was
// lost on the way.
void StepClock::send(const topologies::MixingMatrix& matrix, std::uint64_t bytes,
                     const Sending& sending, Node node) {
  State& state = nodes_[node];
  state.traffic = {};
  if (!state.present) return;
  const auto receivers = matrix.receivers(node);
  const double from = sending.before_training ? state.started : state.finished;
  departs_[node] = std::max(from, state.uplink_free);
  state.traffic.messages = receivers.size();
  state.traffic.bytes_sent = receivers.size() * bytes;
  if (network_.resends()) {
    for (std::size_t place = 0; place < receivers.size(); ++place) {
      state.traffic.bytes_sent += pass(matrix, node, place, bytes, sending.exchange).resent_bytes;
    }
  }
  state.uplink_free = departs_[node] + network_.transfer_seconds(node, state.traffic.bytes_sent);
}

// Of the message from `from` to its receiver at `place`, as it is sent for the first time.
sim::Network::Passage StepClock::pass(const topologies::MixingMatrix& matrix, Node from,
                                      std::size_t place, std::uint64_t bytes,
                                      std::uint64_t exchange) const {
  const auto receivers = matrix.receivers(from);
  const auto turn = static_cast<double>(turn_of(receivers, from, place) + 1);
  return network_.pass({.from = from,
                        .to = receivers[place].node,
                        .number = exchange,
                        .bytes = bytes,
                        .sent = departs_[from] + turn * network_.transfer_seconds(from, bytes)});
}

void StepClock::find_incoming(const topologies::MixingMatrix& matrix,
                              const std::vector<std::uint64_t>& bytes, std::uint64_t exchange,
                              Node node, Incoming& incoming) {
  incoming.arrivals.clear();
  incoming.missed_at = 0;
  const auto senders = matrix.senders(node);
  for (std::size_t k = 0; k < senders.size(); ++k) {
    const Node from = senders[k].node;
    const State& sender = nodes_[from];
    if (!sender.present) {
      if (sender.known_away) continue;
      const double round_trip = 2 * network_.latency(from, node, sender.gone);
      incoming.missed_at = std::max(incoming.missed_at, sender.gone + round_trip);
      continue;
    }
    const auto receivers = matrix.receivers(from);
    const std::size_t place = place_of(receivers, node);
    const auto passage = pass(matrix, from, place, bytes[from], exchange);
    if (passage.lost) {
      ++nodes_[node].traffic.lost;
      incoming.missed_at = std::max(incoming.missed_at, passage.missed_at);
      continue;
    }
    const auto turn = static_cast<double>(turn_of(receivers, from, place) + 1);
    const double first_sent = departs_[from] + turn * network_.transfer_seconds(from, bytes[from]);
    const double sent = first_sent + network_.transfer_seconds(from, passage.resent_bytes);
    const double through = nodes_[node].links.passes(
        network_, {.from = from, .to = node, .bytes = bytes[from], .sent = first_sent},
        sent + passage.seconds);
    incoming.arrivals.push_back({through, false, k});
  }
  const auto& late = nodes_[node].late;
  for (std::size_t k = 0; k < late.size(); ++k) {
    incoming.arrivals.push_back({late[k].reaches, true, k});
  }
  std::ranges::sort(incoming.arrivals);
}

// Messages pass the receiver's link in the order of their arrival.
void StepClock::receive(const topologies::MixingMatrix& matrix,
                        const std::vector<std::uint64_t>& bytes, std::uint64_t exchange,
                        Node node) {
  State& state = nodes_[node];
  const auto senders = matrix.senders(node);
  if (!state.present) {
    for (const topologies::Weight& sender : senders) {
      state.traffic.lost += nodes_[sender.node].present ? 1 : 0;
    }
    return;
  }
  thread_local Incoming incoming;
  find_incoming(matrix, bytes, exchange, node, incoming);
  const double limit = lossy_ ? state.finished + network_.deadline() : sim::kNever;
  state.ready = std::max(state.finished, std::min(incoming.missed_at, limit));
  double link_free = state.downlink_free;
  for (const Arrival& arrival : incoming.arrivals) {
    const Node from =
        arrival.is_late ? state.late[arrival.index].from : senders[arrival.index].node;
    const std::uint64_t size = arrival.is_late ? state.late[arrival.index].bytes : bytes[from];
    const double transfer = network_.transfer_seconds(node, size);
    const double slower = std::max(0.0, transfer - network_.transfer_seconds(from, size));
    // The link works on a message while it comes in: what makes it late is another one before it,
    // or a link that is slower than the sender's.
    link_free = std::max(arrival.time + slower, link_free + transfer);
    if (arrival.is_late) {
      state.late[arrival.index].arrives = link_free;
      continue;
    }
    state.ready = std::max(state.ready, std::min(link_free, limit));
    if (link_free <= limit) {
      heard_[first_entry_[node] + arrival.index] = exchange;
      ++state.traffic.arrived;
      state.downlink_free = link_free;
    } else {
      state.late.push_back({.from = from,
                            .exchange = exchange,
                            .arrives = link_free,
                            .reaches = arrival.time,
                            .bytes = size});
    }
  }
  if (!state.late.empty()) take_late(senders, exchange, node);
}

// What comes late until the node goes on, which waits for what is too old.
void StepClock::take_late(std::span<const topologies::Weight> senders, std::uint64_t exchange,
                          Node node) {
  State& state = nodes_[node];
  for (const Late& late : state.late) {
    if (late.exchange + kLateMax <= exchange) state.ready = std::max(state.ready, late.arrives);
  }
  const auto heard_of = [&](Node from) -> std::uint64_t* {
    const std::size_t place = place_of(senders, from);
    if (place == senders.size() || senders[place].node != from) return nullptr;
    return &heard_[first_entry_[node] + place];
  };
  std::erase_if(state.late, [&](const Late& late) {
    if (late.arrives > state.ready) return false;
    state.downlink_free = std::max(state.downlink_free, late.arrives);
    ++state.traffic.arrived;
    state.traffic.late += late.exchange < exchange ? 1 : 0;
    state.traffic.staleness += exchange - late.exchange;
    std::uint64_t* heard = late.superseded ? nullptr : heard_of(late.from);
    if (heard != nullptr && (*heard == kNothing || *heard < late.exchange)) *heard = late.exchange;
    return true;
  });
  for (Late& late : state.late) {
    const std::uint64_t* heard = heard_of(late.from);
    if (heard != nullptr && *heard != kNothing && *heard > late.exchange) late.superseded = true;
  }
}

void StepClock::all_reduce(std::span<const Node> group, std::uint64_t bytes,
                           std::uint64_t exchange) {
  ReduceClock clock(network_);
  std::vector<Node> members;
  for (const Node node : group) {
    const State& state = nodes_[node];
    if (state.present) {
      members.push_back(node);
      clock.add(node, state.finished, state.uplink_free, state.downlink_free);
    } else if (!state.known_away && !members.empty()) {
      clock.gatherer_waits_until(state.gone +
                                 2 * network_.latency(node, members.front(), state.gone));
    }
  }
  traffic_ += clock.run(bytes, exchange);
  for (std::size_t i = 0; i < members.size(); ++i) {
    State& state = nodes_[members[i]];
    state.ready = clock.members()[i].ready;
    state.uplink_free = clock.members()[i].uplink_free;
    state.downlink_free = clock.members()[i].downlink_free;
  }
}

void StepClock::archive(Archive& state) {
  for (State& node : nodes_) {
    for (double* time : {&node.ready, &node.started, &node.finished, &node.gone, &node.uplink_free,
                         &node.downlink_free}) {
      state(*time);
    }
    node.links.archive(state);
    node.late.resize(state.count(node.late.size(), sizeof(Node)));
    for (Late& late : node.late) {
      state(late.from);
      state.expect(late.from < nodes_.size());
      state(late.exchange);
      state(late.arrives);
      state(late.superseded);
      state(late.reaches);
      state(late.bytes);
    }
    state(node.present);
    state(node.returns);
    state(node.known_away);
  }
  state(front_);
  state(present_count_);
  traffic_.archive(state);
}

double StepClock::now() const {
  double latest = front_;
  for (const State& state : nodes_) {
    if (state.present) latest = std::max(latest, state.ready);
  }
  return latest;
}

}  // namespace starling::gossip

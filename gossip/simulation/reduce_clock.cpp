// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/reduce_clock.h"

#include <algorithm>

namespace starling::gossip {
namespace {

constexpr std::size_t kGatherer = 0;
// Beside the steps of a ring or tree: words to the gatherer and back, twice.
constexpr std::uint64_t kWordTurns = 4;

}  // namespace

void ReduceClock::add(std::uint32_t node, double ready, double uplink_free, double downlink_free) {
  members_.push_back({node, ready, uplink_free, downlink_free});
}

void ReduceClock::gatherer_waits_until(double time) {
  gatherer_begins_ = std::max(gatherer_begins_, time);
}

Traffic ReduceClock::run(std::uint64_t bytes, std::uint64_t exchange) {
  traffic_ = {};
  if (members_.size() < 2) return traffic_;
  number_ = exchange * (2 * members_.size() + kWordTurns);
  hear_all();
  members_[kGatherer].ready = std::max(members_[kGatherer].ready, gatherer_begins_);
  tell_all();
  const std::uint64_t floats = bytes / 4;
  if (collective::choose_shape({}, members_.size(), floats) == collective::Shape::kRing) {
    ring(floats);
  } else {
    tree(floats);
  }
  hear_all();
  tell_all();
  return traffic_;
}

double ReduceClock::word(std::size_t from, std::size_t to, double time) {
  return time + network_
                    .pass_reliably({.from = members_[from].node,
                                    .to = members_[to].node,
                                    .number = number_,
                                    .sent = time})
                    .seconds;
}

// The gatherer has heard of all.
void ReduceClock::hear_all() {
  ++number_;
  for (std::size_t i = 1; i < members_.size(); ++i) {
    members_[kGatherer].ready =
        std::max(members_[kGatherer].ready, word(i, kGatherer, members_[i].ready));
  }
}

void ReduceClock::tell_all() {
  ++number_;
  for (std::size_t i = 1; i < members_.size(); ++i) {
    members_[i].ready = word(kGatherer, i, members_[kGatherer].ready);
  }
}

// Returns when the receiver's link could be through with it.
double ReduceClock::send(std::size_t from, std::size_t to, std::uint64_t floats, double time) {
  Member& sender = members_[from];
  const std::uint64_t bytes = 4 * floats;
  const double out = network_.transfer_seconds(sender.node, bytes);
  const double in = network_.transfer_seconds(members_[to].node, bytes);
  const double sent = std::max(time, sender.uplink_free) + out;
  const sim::Network::Message message{.from = sender.node,
                                      .to = members_[to].node,
                                      .number = number_,
                                      .bytes = bytes,
                                      .sent = sent};
  const auto passage = network_.pass_reliably(message);
  const double again = network_.transfer_seconds(sender.node, passage.resent_bytes);
  sender.uplink_free = sent + again;
  traffic_ += {.messages = 1, .bytes_sent = bytes + passage.resent_bytes, .arrived = 1};
  const double through = queues_.passes(network_, message, sent + again + passage.seconds);
  return through + std::max(0.0, in - out);
}

double ReduceClock::receive(std::size_t to, std::uint64_t floats, double reaches) {
  Member& receiver = members_[to];
  const double in = network_.transfer_seconds(receiver.node, 4 * floats);
  return receiver.downlink_free = std::max(reaches, receiver.downlink_free + in);
}

// Member i passes segment i - s on in step s, 2 (P - 1) steps of it: P - 1 until every sum is
// whole, P - 1 until all have them. Empty segments are not sent.
void ReduceClock::ring(std::uint64_t floats) {
  const std::size_t size = members_.size();
  std::vector<double> reaches(size);
  for (std::size_t step = 0; step < 2 * (size - 1); ++step) {
    ++number_;
    const auto floats_of = [&](std::size_t member) {
      return collective::segment_size(member + 2 * size - step, size, floats);
    };
    for (std::size_t i = 0; i < size; ++i) {
      if (floats_of(i) == 0) continue;
      reaches[i] = send(i, (i + 1) % size, floats_of(i), members_[i].ready);
    }
    for (std::size_t i = 0; i < size; ++i) {
      if (floats_of(i) == 0) continue;
      const std::size_t to = (i + 1) % size;
      members_[to].ready = std::max(members_[to].ready, receive(to, floats_of(i), reaches[i]));
    }
  }
}

void ReduceClock::tree(std::uint64_t floats) {
  std::vector<double> reaches_parent(members_.size());
  ++number_;
  for (std::size_t i = members_.size(); i-- > 0;) climb(i, floats, reaches_parent);
  ++number_;
  for (std::size_t i = 0; i < members_.size(); ++i) descend(i, floats);
}

// Takes the sums of its children in the order in which they arrive, and sends its own to its
// parent.
void ReduceClock::climb(std::size_t member, std::uint64_t floats,
                        std::vector<double>& reaches_parent) {
  const std::uint64_t levels = collective::tree_levels(member, members_.size());
  std::vector<double> arrivals;
  for (std::uint64_t k = 0; k < levels; ++k) {
    const std::size_t child = member + (std::size_t{1} << k);
    if (child < members_.size()) arrivals.push_back(reaches_parent[child]);
  }
  std::ranges::sort(arrivals);
  for (const double reaches : arrivals) {
    members_[member].ready = std::max(members_[member].ready, receive(member, floats, reaches));
  }
  if (member == kGatherer) return;
  const std::size_t parent = member - (std::size_t{1} << levels);
  reaches_parent[member] = send(member, parent, floats, members_[member].ready);
}

// The largest subtree first.
void ReduceClock::descend(std::size_t member, std::uint64_t floats) {
  for (std::uint64_t k = collective::tree_levels(member, members_.size()); k-- > 0;) {
    const std::size_t child = member + (std::size_t{1} << k);
    if (child >= members_.size()) continue;
    const double reaches = send(member, child, floats, members_[member].ready);
    members_[child].ready = receive(child, floats, reaches);
  }
}

}  // namespace starling::gossip

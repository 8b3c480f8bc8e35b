// SPDX-License-Identifier: Apache-2.0
#include "core/sim/network.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace starling::sim {
namespace {

// At the greatest probability of a loss, 0.999, one piece in 20,000 would need more.
constexpr int kRetransmissionsMax = 10'000;

std::uint64_t pieces_of(std::uint64_t bytes) {
  return std::max<std::uint64_t>(1, (bytes + kPieceBytes / 2) / kPieceBytes);
}

// What it takes until every piece has come: the pieces that were lost are sent again together, each
// time with the probability of a loss of then.
struct Losses {
  int rounds = 0;
  std::uint64_t pieces = 0;
};

template <class LossAfter>  // rounds -> probability
Losses draw_losses(Rng& rng, std::uint64_t pieces, LossAfter loss_after) {
  Losses losses;
  while (losses.rounds < kRetransmissionsMax) {
    const double loss = loss_after(losses.rounds);
    std::uint64_t lost = 0;
    for (std::uint64_t k = 0; k < pieces; ++k) lost += rng.uniform() < loss ? 1 : 0;
    if (lost == 0) break;
    ++losses.rounds;
    losses.pieces += lost;
    pieces = lost;
  }
  return losses;
}

// Streams of Purpose::kNetwork, told apart by the attempt.
enum NetworkStream : std::uint32_t { kBandwidth = 1, kLatency = 2, kMessage = 3, kPart = 4 };

Rng network_stream(std::uint64_t seed, NetworkStream which, std::uint64_t node,
                   std::uint64_t number = 0) {
  return Rng({.seed = seed,
              .purpose = Purpose::kNetwork,
              .node = node,
              .round = static_cast<std::uint32_t>(number),
              .attempt = which | (static_cast<std::uint32_t>(number >> 32) << 8)});
}

Error bad_split(std::string_view text) {
  return wrong_setting("bad-split", "network.splits: '" + std::string(text) +
                                        "' is not a split of the network; write FROM-TO:PARTS with "
                                        "FROM before TO and 2 parts or more, such as 60s-120s:2");
}

}  // namespace

Result<Network> Network::make(const NetworkOptions& options, std::uint32_t nodes,
                              std::uint64_t seed) {
  Network network;
  network.seed_ = seed;
  STARLING_ASSIGN(network.latency_,
                  Distribution::parse(options.latency, Unit::kDuration, "network.latency"));
  STARLING_ASSIGN(network.jitter_,
                  Distribution::parse(options.jitter, Unit::kDuration, "network.jitter"));
  STARLING_ASSIGN(const auto bandwidth,
                  Distribution::parse(options.bandwidth, Unit::kRate, "network.bandwidth"));
  if (!options.links.empty()) {
    STARLING_ASSIGN(network.links_, LinkValues::read(options.links, nodes));
  }
  if (bandwidth.constant() && !network.links_.has_access()) {
    network.bandwidth_ = bandwidth.least();
  } else {
    // A link without any bandwidth would never deliver.
    constexpr double kLeastBytesPerSecond = 1;
    network.bandwidths_.resize(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) {
      Rng rng = network_stream(seed, kBandwidth, node);
      const double drawn = std::max(bandwidth.draw(rng), kLeastBytesPerSecond);
      network.bandwidths_[node] = network.links_.access(node).value_or(drawn);
    }
  }
  network.loss_ = options.loss;
  network.retransmit_ = options.retransmit;
  network.retransmit_after_ = to_seconds(options.retransmit_after);
  network.deadline_ = to_seconds(options.deadline);
  STARLING_TRY(network.read_splits(options.splits));
  return network;
}

Result<void> Network::read_splits(std::string_view text) {
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::size_t dash = one.find('-');
    const std::size_t colon = one.find(':');
    if (dash == one.npos || colon == one.npos || colon < dash) return bad_split(one);
    const auto from = parse_duration(one.substr(0, dash));
    const auto to = parse_duration(one.substr(dash + 1, colon - dash - 1));
    Split split;
    const std::string_view parts = one.substr(colon + 1);
    const auto read = std::from_chars(parts.data(), parts.data() + parts.size(), split.parts);
    const bool whole = read.ec == std::errc{} && read.ptr == parts.data() + parts.size();
    if (!from || !to || !whole || split.parts < 2 || *from >= *to) return bad_split(one);
    split.from = to_seconds(*from);
    split.to = to_seconds(*to);
    splits_.push_back(split);
  }
  return {};
}

// Of whole nanoseconds, so that a file can hold it as it is.
double Network::latency(std::uint32_t from, std::uint32_t to, double time) const {
  if (const auto said = links_.link(from, to, time).latency) return *said;
  if (latency_.constant()) return latency_.least();
  Rng rng = network_stream(seed_, kLatency, link_of(std::min(from, to), std::max(from, to)));
  return to_seconds(from_seconds(latency_.draw(rng)));
}

std::uint32_t Network::part_of(std::uint32_t node, std::size_t split) const {
  Rng rng = network_stream(seed_, kPart, node, split);
  return static_cast<std::uint32_t>(rng.below(splits_[split].parts));
}

const Network::Split* Network::separation(std::uint32_t a, std::uint32_t b, double time) const {
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    const Split& split = splits_[i];
    if (time < split.from || time >= split.to) continue;
    if (part_of(a, i) != part_of(b, i)) return &split;
  }
  return nullptr;
}

std::optional<double> Network::separated_until(std::uint32_t a, std::uint32_t b,
                                               double time) const {
  const Split* split = separation(a, b, time);
  if (split == nullptr) return std::nullopt;
  return split->to;
}

Network::Passage Network::pass(const Message& message, bool retransmit) const {
  const double latency = this->latency(message.from, message.to, message.sent);
  const double loss = this->loss(message.from, message.to, message.sent);
  Passage passage{.seconds = latency};
  if (loss > 0 || !jitter_.constant()) {
    Rng rng = network_stream(seed_, kMessage, link_of(message.from, message.to), message.number);
    passage.seconds += jitter_.draw(rng);
    if (retransmit) {
      const Losses losses = draw_losses(rng, pieces_of(message.bytes), [&](int rounds) {
        return this->loss(message.from, message.to, message.sent + rounds * retransmit_after_);
      });
      passage.seconds += losses.rounds * retransmit_after_;
      passage.resent_bytes = losses.pieces * message.bytes / pieces_of(message.bytes);
    } else {
      const double whole = std::pow(1 - loss, static_cast<double>(pieces_of(message.bytes)));
      passage.lost = rng.uniform() >= whole;
    }
  } else {
    passage.seconds += jitter_.least();
  }
  // Callers count the slower of the two access links.
  const double access = std::min(bandwidth(message.from), bandwidth(message.to));
  const double slower = link_seconds(message) - static_cast<double>(message.bytes) / access;
  passage.seconds += std::max(0.0, slower);
  const double round_trip = 2 * latency;
  passage.missed_at = message.sent + passage.seconds + round_trip;
  if (const Split* split = separation(message.from, message.to, message.sent)) {
    passage.lost = passage.lost || !retransmit;
    passage.seconds += split->to - message.sent;
    passage.missed_at = std::min(passage.missed_at, split->from + round_trip);
  }
  return passage;
}

}  // namespace starling::sim

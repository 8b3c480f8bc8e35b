// SPDX-License-Identifier: Apache-2.0
// The simulated network: how long a message takes and whether it comes. Every node has an access
// link with a bandwidth each way, every pair of nodes a latency; what is drawn depends on the seed,
// the nodes and the message's number alone, never on the order of questions. One model for gossip
// and for federations, whose coordinator is the node after the last client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/sim/distribution.h"
#include "core/sim/link_values.h"

namespace starling::sim {

// What is lost is lost in pieces of this size: a message of b bytes has b / kPieceBytes of them,
// rounded, and at least one.
inline constexpr std::uint64_t kPieceBytes = 64 * 1024;

struct NetworkOptions {
  std::string latency = "1ms";
  std::string jitter = "0s";
  std::string bandwidth = "1Gbit/s";
  double loss = 0;
  bool retransmit = false;
  Duration retransmit_after = std::chrono::milliseconds(200);
  Duration deadline = std::chrono::seconds(10);
  std::string splits;  // "60s-120s:2" or several with ';'
  std::string links;   // a file
};

template <class V>
void describe(V& visit, NetworkOptions& o) {
  visit("latency", o.latency,
        FieldInfo{.help = "one way, drawn once a pair of nodes: a duration, uniform:LOW,HIGH, "
                          "exponential:MEAN or lognormal:MEDIAN,SIGMA"});
  visit("jitter", o.jitter,
        FieldInfo{.help = "added to each message's latency, drawn for each; forms as latency"});
  visit("bandwidth", o.bandwidth,
        FieldInfo{.help = "of a node's access link, each way, drawn once a node: as 10Mbit/s or "
                          "1GB/s, or a distribution of these"});
  visit(
      "loss", o.loss,
      FieldInfo{.help = "probability that a piece of a message is lost, a piece for every 64 KiB; "
                        "a message without one of its pieces is lost",
                .min = 0,
                .max = 0.999});
  visit("retransmit", o.retransmit,
        FieldInfo{.help = "lost pieces are sent again: losses cost time and bytes, no messages"});
  visit("retransmit-after", o.retransmit_after,
        FieldInfo{.help = "until a lost piece is sent again", .min = 0, .max = 86400});
  visit("deadline", o.deadline,
        FieldInfo{.help = "longest wait for a message where messages may be lost; one that comes "
                          "later is mixed at the next exchange",
                  .min = 0,
                  .max = 86400});
  visit("splits", o.splits,
        FieldInfo{.help = "times when the network falls into parts that do not hear each other: "
                          "FROM-TO:PARTS, several separated by ';', such as 60s-120s:2"});
  visit("links", o.links,
        FieldInfo{.help = "CSV file of links with values of their own: columns from, to, any of "
                          "latency, bandwidth and loss, and time, from which on a row holds; "
                          "empty: all are drawn"});
}

class Network {
 public:
  // Reads options.links. Fails with "bad-distribution" or "bad-split", or as LinkValues.
  [[nodiscard]] static Result<Network> make(const NetworkOptions& options, std::uint32_t nodes,
                                            std::uint64_t seed);

  // Of node's access link, bytes a second.
  double bandwidth(std::uint32_t node) const {
    return bandwidths_.empty() ? bandwidth_ : bandwidths_[node];
  }
  // Seconds a message of `bytes` occupies that link.
  double transfer_seconds(std::uint32_t node, std::uint64_t bytes) const {
    return static_cast<double>(bytes) / bandwidth(node);
  }
  // Of the pair alone, seconds; symmetric, unless the file of links has both directions. What a
  // message takes is that of the moment at which it is sent.
  double latency(std::uint32_t from, std::uint32_t to, double time = 0) const;
  // Probability that a piece of a message is lost on this way.
  double loss(std::uint32_t from, std::uint32_t to, double time = 0) const {
    return links_.link(from, to, time).loss.value_or(loss_);
  }
  // Of the way between the two access links, bytes a second; nothing unless the file of links says
  // it.
  std::optional<double> link_bandwidth(std::uint32_t from, std::uint32_t to,
                                       double time = 0) const {
    return links_.link(from, to, time).bandwidth;
  }
  // When any of these three changes, after the start.
  std::vector<double> changes(std::uint32_t from, std::uint32_t to) const {
    return links_.changes(from, to);
  }
  bool links_change() const { return links_.change(); }
  bool has_link_bandwidths() const { return links_.has_bandwidths(); }
  // What differs from one link or node to another: drawn, or said by the file of links.
  bool links_differ() const { return !latency_.constant() || !links_.empty(); }
  bool bandwidths_differ() const { return !bandwidths_.empty(); }

  // A message as its sender's link lets go of it.
  struct Message {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint64_t number = 0;  // different for all messages from `from` to `to`
    std::uint64_t bytes = 0;
    double sent = 0;  // seconds
  };
  struct Passage {
    // Latency, jitter, the waits before retransmissions, and what the way between is slower than
    // both access links.
    double seconds = 0;
    std::uint64_t resent_bytes = 0;
    bool lost = false;
    // Where it is lost: when the receiver can know, seconds. A round trip after it should have
    // come, or after the split that holds it began.
    double missed_at = 0;
  };
  // As if it were alone on its link (link_queues.h).
  Passage pass(const Message& message) const { return pass(message, retransmit_); }
  // As over a connection that sends again what was lost, whatever the options say.
  Passage pass_reliably(const Message& message) const { return pass(message, true); }

  // Seconds that a link with a bandwidth of its own is occupied by a message; else 0.
  double link_seconds(const Message& message) const {
    const auto rate = link_bandwidth(message.from, message.to, message.sent);
    return rate ? static_cast<double>(message.bytes) / *rate : 0;
  }

  double deadline() const { return deadline_; }  // seconds
  // A time at which the network falls into parts, and these into one again: seconds.
  struct Split {
    double from = 0;
    double to = 0;
    std::uint32_t parts = 2;
  };
  const std::vector<Split>& splits() const { return splits_; }
  // The end of the split that keeps them apart at `time`, or nothing.
  std::optional<double> separated_until(std::uint32_t a, std::uint32_t b, double time) const;
  // Messages may fail to come.
  bool lossy() const { return (loses() && !retransmit_) || !splits_.empty(); }
  // Messages may need more bytes than they have.
  bool resends() const { return loses() && retransmit_; }

 private:
  Network() = default;
  [[nodiscard]] Result<void> read_splits(std::string_view text);
  Passage pass(const Message& message, bool retransmit) const;
  bool loses() const { return loss_ > 0 || links_.loss_max() > 0; }
  const Split* separation(std::uint32_t a, std::uint32_t b, double time) const;
  std::uint32_t part_of(std::uint32_t node, std::size_t split) const;

  std::uint64_t seed_ = 1;
  Distribution latency_;
  Distribution jitter_;
  double bandwidth_ = 0;
  std::vector<double> bandwidths_;  // empty: all alike
  double loss_ = 0;
  LinkValues links_;
  bool retransmit_ = false;
  double retransmit_after_ = 0;
  double deadline_ = 0;
  std::vector<Split> splits_;
};

}  // namespace starling::sim

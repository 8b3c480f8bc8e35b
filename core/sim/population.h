// SPDX-License-Identifier: Apache-2.0
// The simulated nodes: how fast each computes and when it is there. Drawn from the seed, the node
// and the step alone, so that gossip and federations meet the same devices.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/rng.h"
#include "core/sim/distribution.h"

namespace starling::sim {

struct NodeOptions {
  Duration step_time = std::chrono::milliseconds(10);
  std::string speed = "1";
  std::string step_jitter = "1";
  double stragglers = 0;
  double slowdown = 10;
  Duration join_within{};
  Duration leave_after{};
  Duration crash_every{};
  Duration return_after = std::chrono::seconds(10);
  std::string speeds;    // a file
  std::string presence;  // a file
};

template <class V>
void describe(V& visit, NodeOptions& o) {
  visit("step-time", o.step_time,
        FieldInfo{
            .help = "virtual time of one local step on a node of speed 1", .min = 0, .max = 86400});
  visit("speed", o.speed,
        FieldInfo{.help = "of a node, drawn once: a factor, uniform:LOW,HIGH, exponential:MEAN or "
                          "lognormal:MEDIAN,SIGMA"});
  visit("step-jitter", o.step_jitter,
        FieldInfo{.help = "factor on a local step's time, drawn every step; forms as speed"});
  visit(
      "stragglers", o.stragglers,
      FieldInfo{
          .help =
              "fraction of the nodes that are slow: so many of them, rounded, drawn from the seed",
          .min = 0,
          .max = 1});
  visit("slowdown", o.slowdown,
        FieldInfo{.help = "how many times slower a straggler is", .min = 1, .max = 1e6});
  visit("join-within", o.join_within,
        FieldInfo{.help = "nodes join at times spread evenly over this; 0s: all at the start",
                  .min = 0,
                  .max = 1e9});
  visit("leave-after", o.leave_after,
        FieldInfo{.help = "mean time until a node leaves permanently, exponential; 0s: never",
                  .min = 0,
                  .max = 1e9});
  visit("crash-every", o.crash_every,
        FieldInfo{.help = "mean time between a node's crashes, exponential; 0s: never",
                  .min = 0,
                  .max = 1e9});
  visit(
      "return-after", o.return_after,
      FieldInfo{
          .help = "mean time until a crashed node is back, exponential", .min = 0.001, .max = 1e9});
  visit("speeds", o.speeds,
        FieldInfo{.help = "CSV file of nodes with a speed of their own: columns node and speed; "
                          "empty: all are drawn"});
  visit("presence", o.presence,
        FieldInfo{.help = "CSV file of times at which nodes are there: columns node, joins and "
                          "leaves, a row each time; empty: as drawn"});
}

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Times are virtual seconds from the start.
class Population {
 public:
  // Reads options.speeds and options.presence. Fails with "bad-distribution", or as ValueFile.
  [[nodiscard]] static Result<Population> make(const NodeOptions& options, std::uint32_t nodes,
                                               std::uint64_t seed);

  // Of a node: how many times faster than nodes.step-time says.
  double speed(std::uint32_t node) const { return static_cast<double>(speeds_[node]); }
  // Of local step `step` (from 0) on `node`.
  double step_seconds(std::uint32_t node, std::uint64_t step) const;

  // Whether nodes may be away at all.
  bool churns() const { return churns_; }
  // Where `node` is away at `time`: when it is there again (kNever: it has left). Else `time`.
  double up_from(std::uint32_t node, double time) const;
  // Where `node` is there at `time`: when it goes away next. Else `time`.
  double up_until(std::uint32_t node, double time) const;
  // When it appears and goes, in turn, up to the first that is after `time`. Requires: churns().
  std::vector<double> changes(std::uint32_t node, double time) const;

 private:
  // When a node appears and goes, in turn, beginning with an appearance; drawn as far as asked.
  struct Presence {
    Rng rng;
    double leaves = kNever;
    std::vector<double> changes;
  };

  Population() = default;
  void slow_down_stragglers();
  [[nodiscard]] Result<void> read_speeds(const std::string& path);
  [[nodiscard]] Result<void> read_presence(const std::string& path);
  void begin_lives(std::uint32_t nodes);
  // The index of the first change after `time`; odd: the node is there.
  std::size_t changes_until(std::uint32_t node, double time) const;

  std::uint64_t seed_ = 1;
  NodeOptions options_;
  Distribution step_jitter_;
  std::vector<float> speeds_;  // relative
  bool churns_ = false;
  mutable std::vector<Presence>
      presences_;  // empty unless churns_; not for two threads and one node
};

}  // namespace starling::sim

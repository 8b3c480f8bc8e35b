// SPDX-License-Identifier: Apache-2.0
// What is to go wrong in a launched network, and when: events from a TOML file, a table each under
// a name of its own, and events drawn from the run's seed. Resolving a script draws everything that
// is left to chance, so that the same seed breaks the same nodes at the same times.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/config/documentation.h"
#include "core/graph/graph.h"
#include "gossip/launch/tcp_proxy.h"

namespace starling::gossip {

using graph::Node;

enum class FaultKind { kKill, kRestart, kPause, kPartition, kStall, kDelay, kBandwidth, kReset };
inline constexpr std::array<std::string_view, 8> kFaultKinds = {
    "kill", "restart", "pause", "partition", "stall", "delay", "bandwidth", "reset"};
inline constexpr std::array<std::string_view, 3> kFaultDirections = {"both", "out", "in"};

// An event as a table of the file says it. Nodes count from 1.
struct FaultOptions {
  std::optional<Duration> at;
  std::optional<std::uint64_t> step;
  std::string kind;
  std::string nodes = "random:1";
  std::string others = "rest";
  std::string direction = "both";
  Duration lasts{};
  Duration delay{};
  Duration jitter{};
  std::string bandwidth;
};

template <class V>
void describe(V& visit, FaultOptions& o) {
  visit(
      "at", o.at,
      FieldInfo{.help = "when, counted from the first step; this or `step`", .min = 0, .max = 1e9});
  visit("step", o.step,
        FieldInfo{.help = "when the first node has done so many steps", .min = 0, .max = 1e9});
  visit("kind", o.kind,
        FieldInfo{.help =
                      "kill: permanently; restart: kill, and start again after `for`; pause: stop "
                      "the process; partition, stall: nothing passes; delay; bandwidth; reset: "
                      "break the connections",
                  .choices = kFaultKinds});
  visit("nodes", o.nodes,
        FieldInfo{.help = "whom it meets, counted from 1 as in node-0001: 3, 2-5, lists of these "
                          "(1,4-6), all, or random:K"});
  visit("others", o.others,
        FieldInfo{.help = "the other ends of the links that it meets, written like nodes; rest: "
                          "all that are not in nodes, or all where nodes are all"});
  visit("direction", o.direction,
        FieldInfo{.help = "partition, stall, delay, bandwidth: what the nodes send (out), what "
                          "they receive (in), or both",
                  .choices = kFaultDirections});
  visit("for", o.lasts,
        FieldInfo{.help = "how long it lasts; 0s: to the end", .min = 0, .max = 1e9});
  visit("delay", o.delay, FieldInfo{.help = "delay: one way", .min = 0, .max = 3600});
  visit("jitter", o.jitter,
        FieldInfo{.help = "delay: added, uniform, drawn for each piece", .min = 0, .max = 3600});
  visit("bandwidth", o.bandwidth, FieldInfo{.help = "bandwidth: as 10Mbit/s or 1MB/s"});
}

// Events drawn from the seed.
struct ChaosOptions {
  std::uint32_t count = 0;
  std::string kinds = "restart,pause,partition,delay,bandwidth,reset";
  Duration from = std::chrono::seconds(5);
  Duration until = std::chrono::seconds(60);
  Duration lasts = std::chrono::seconds(5);
};

template <class V>
void describe(V& visit, ChaosOptions& o) {
  visit("count", o.count, FieldInfo{.help = "how many are drawn", .min = 0, .max = 10000});
  visit("kinds", o.kinds, FieldInfo{.help = "which kinds, separated by commas"});
  visit("from", o.from, FieldInfo{.help = "the first not before", .min = 0, .max = 1e9});
  visit("until", o.until, FieldInfo{.help = "the last not after", .min = 0, .max = 1e9});
  visit("for", o.lasts, FieldInfo{.help = "how long one lasts, on average", .min = 0, .max = 1e9});
}

// An event with everything drawn.
struct FaultEvent {
  std::string name;
  FaultKind kind = FaultKind::kKill;
  std::optional<Duration> at;  // or else at `step`
  std::uint64_t step = 0;
  Duration lasts{};  // 0: to the end
  std::vector<Node> nodes;
  std::vector<std::pair<Node, Node>> links;  // from, to; of a reset each pair once
  LinkCondition condition;                   // of these links while it lasts

  // Whether it needs the proxy.
  bool on_links() const { return kind >= FaultKind::kPartition; }
  friend bool operator==(const FaultEvent&, const FaultEvent&) = default;
};

using FaultScript = std::vector<FaultEvent>;  // by time, then those by step

// Fails with "bad-events" or as a configuration file does; sentences name the file and the event.
[[nodiscard]] Result<FaultScript> read_fault_script(std::string_view text,
                                                    std::string_view file_name, Node nodes,
                                                    std::uint64_t seed);
[[nodiscard]] Result<FaultScript> draw_faults(const ChaosOptions& options, Node nodes,
                                              std::uint64_t seed);
// Both together, in order.
FaultScript merge(FaultScript a, FaultScript b);

// "at 30s restart of node 3 for 5s (kill-one)", a line without its end.
std::string to_text(const FaultEvent& event);

// The keys of an event, for the README's table.
std::vector<config::KeyDocument> fault_documents();

}  // namespace starling::gossip

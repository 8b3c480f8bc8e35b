// SPDX-License-Identifier: Apache-2.0
// What `starling-gossip launch` adds to the keys of a simulated network, and which of those mean
// nothing for a real one.
#pragma once

#include <string>
#include <string_view>

#include "core/config/binder.h"
#include "gossip/launch/fault_schedule.h"
#include "gossip/training/options.h"

namespace starling::gossip {

struct LaunchOptions {
  std::string edge;
  std::string events;
  bool proxy = false;
  bool keep = false;
  Duration patience = std::chrono::minutes(2);
  Duration hand_in_deadline = std::chrono::seconds(20);
  Duration stop_deadline = std::chrono::seconds(10);
};

template <class V>
void describe(V& visit, LaunchOptions& o) {
  visit("edge", o.edge,
        FieldInfo{.help = "the program that each peer runs; empty: starling-edge beside this one"});
  visit("events", o.events, FieldInfo{.help = "a TOML file of what is to go wrong, and when"});
  visit("proxy", o.proxy,
        FieldInfo{.help = "put the proxy into every link even though nothing impairs it; events "
                          "and keys of [network] do so by themselves"});
  visit("keep", o.keep,
        FieldInfo{.help = "leave the peers' state directories, keys included, and say where"});
  visit(
      "patience", o.patience,
      FieldInfo{.help = "the run fails when no peer gets on for so long", .min = 1, .max = 86400});
  visit("hand-in-deadline", o.hand_in_deadline,
        FieldInfo{.help = "how long an evaluation waits for the models of those that are behind",
                  .min = 0.1,
                  .max = 86400});
  visit("stop-deadline", o.stop_deadline,
        FieldInfo{.help = "from SIGTERM to SIGKILL, when the run is over", .min = 0, .max = 3600});
}

// Everything that a launched network is described by.
struct LaunchConfig {
  NetOptions net;
  LaunchOptions launch;
  ChaosOptions chaos;

  // Binds every key to this object, which must outlive the binder's use.
  void bind(config::Binder& binder);
};

// Refuses keys that only a simulated network has ("launch-options").
[[nodiscard]] Result<void> check_launchable(const config::Binder& binder,
                                            const NetOptions& options);
// What members of the roster are told: the network's keys that are not at their defaults, and
// whether messages may be lost.
Settings roster_settings(const NetOptions& options, bool lossy);
// The links as [network] describes them, where a key of it was said; splits become partitions.
struct NetworkFaults {
  FaultSchedule::Links links;
  FaultScript splits;
};
[[nodiscard]] Result<NetworkFaults> network_faults(const NetOptions& options);

}  // namespace starling::gossip

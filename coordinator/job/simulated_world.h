// SPDX-License-Identifier: Apache-2.0
// The simulated network and nodes around a federation: when a message that one side sends is whole
// at the other, how long a client trains, when it is there. The coordinator is the node after the
// last client. Links are TLS over TCP: what is lost is sent again and costs time, never data, and
// within a session messages arrive in order.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/config/binder.h"
#include "core/sim/network.h"
#include "core/sim/population.h"

namespace starling::coordinator {

struct CoordinatorLinkOptions {
  std::string coordinator_bandwidth;
  std::string coordinator_away;
};

template <class V>
void describe(V& visit, CoordinatorLinkOptions& o) {
  visit("coordinator-bandwidth", o.coordinator_bandwidth,
        FieldInfo{.help = "of the coordinator's access link, each way, as 1Gbit/s; empty: drawn as "
                          "a client's"});
  visit("coordinator-away", o.coordinator_away,
        FieldInfo{.help = "times when the coordinator is killed and for how long: FROM+DURATION, "
                          "several separated by ';', such as 300s+2m"});
}

struct WorldOptions {
  sim::NetworkOptions network;
  CoordinatorLinkOptions coordinator_link;
  sim::NodeOptions nodes;

  // Binds `[network]` and `[nodes]` to this object, which must outlive the binder's use.
  void bind(config::Binder& binder);
};

// Times are virtual seconds from the start; clients count from 0.
class SimulatedWorld {
 public:
  // Fails with "bad-distribution", "bad-split" or "bad-absence".
  [[nodiscard]] static Result<SimulatedWorld> make(const WorldOptions& options,
                                                   std::uint32_t clients, std::uint64_t seed);

  enum class Way { kToClient, kToCoordinator };
  enum class Kind {
    kBulk,   // a piece of a model or update: waits until the link is done with those before it
    kWord,   // any other message: shares the link as packets do, so that it waits only for what its
             // own session sent before it
    kPulse,  // a sign of life: overtakes even that, for in a real link bulk comes in all the time
  };
  struct Message {
    Way way;
    Kind kind;
    std::uint64_t bytes = 0;
    double begins = 0;  // to occupy the receiver's link
  };
  // A client's message, or one to it, goes out at `now`.
  Message send(std::uint32_t client, Way way, Kind kind, std::uint64_t bytes, double now);
  // Called at `message.begins`, in order of these times: when it is whole.
  double receive(std::uint32_t client, const Message& message);
  // A session ended: what the client had not sent yet is forgotten, order begins anew.
  void forget_session(std::uint32_t client);

  // From dialling to connected: two round trips, TCP's and that of TLS.
  double connect_seconds(std::uint32_t client, double now) const;
  // The end of the split that keeps the client from the coordinator at `now`, or nothing.
  std::optional<double> separated_until(std::uint32_t client, double now) const;
  // The client's next so many local steps.
  double train_seconds(std::uint32_t client, std::uint64_t steps);
  // What the coordinator's link needs for so many bytes.
  double coordinator_seconds(std::uint64_t bytes) const;

  struct Absence {
    double from = 0;
    double seconds = 0;
  };
  // Of the coordinator, in order; they do not overlap.
  const std::vector<Absence>& absences() const { return absences_; }

  std::uint32_t clients() const { return coordinator(); }
  // Else network.coordinator-bandwidth says what the coordinator's link has.
  bool draws_coordinator_bandwidth() const { return !coordinator_bandwidth_; }
  const sim::Network& network() const { return network_; }
  const sim::Population& population() const { return population_; }

 private:
  struct Link {  // an access link
    double uplink_free = 0;
    double downlink_free = 0;
  };
  struct Stream {                // one way of a client's session
    std::uint64_t messages = 0;  // in all sessions
    double sent = 0;             // the last byte of the latest message has left
    double begun = 0;            // its first bit arrives
    double whole = 0;            // the latest message is there
  };

  SimulatedWorld(sim::Network network, sim::Population population, std::uint32_t clients,
                 std::optional<double> coordinator_bandwidth, std::vector<Absence> absences);
  std::uint32_t coordinator() const { return static_cast<std::uint32_t>(streams_.size()); }
  double transfer_seconds(std::uint32_t node, std::uint64_t bytes) const;

  sim::Network network_;
  sim::Population population_;
  std::optional<double> coordinator_bandwidth_;  // bytes a second
  std::vector<Absence> absences_;
  std::vector<Link> links_;                     // [clients + 1]
  std::vector<std::array<Stream, 2>> streams_;  // [clients][way]
  std::vector<std::uint64_t> steps_;            // [clients] begun so far
};

}  // namespace starling::coordinator

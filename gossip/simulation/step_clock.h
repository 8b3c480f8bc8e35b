// SPDX-License-Identifier: Apache-2.0
// Virtual time of a synchronous algorithm. Which messages come and when each node can go on follows
// from a recurrence over the steps, so no queue of events is needed and any number of threads may
// compute it: a node is ready when its own work is done and what it waits for has come.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/base/compute_pool.h"
#include "core/sim/link_queues.h"
#include "core/sim/network.h"
#include "core/sim/population.h"
#include "gossip/training/traffic.h"
#include "topologies/mixing_matrix.h"

namespace starling::gossip {

using topologies::Node;

// Where messages may fail to come, a node waits for each until it has come, until its loss is known
// (sim::Network::Passage::missed_at) or until the network's deadline has passed. A message that
// comes after that is not lost: it is mixed at the node's next exchange with its sender, unless a
// newer one of that sender was mixed before. No node goes on without a message that is kLateMax
// exchanges old and still on its way, so that nodes do not drift apart.
class StepClock {
 public:
  static constexpr std::uint64_t kLateMax = kLateExchangesMax;

  // Both must outlive it. `lossy`: nodes go on without what does not come in time; otherwise they
  // wait for everything.
  StepClock(const sim::Network& network, const sim::Population& population, Node nodes, bool lossy);

  // The local steps [step, step + steps) of every node that takes part; who is away, has crashed
  // meanwhile or returns is decided here. False: nobody will ever be there again.
  [[nodiscard]] bool begin(std::uint64_t step, int steps);

  bool present(Node node) const { return nodes_[node].present; }
  // Came (back) with this step: it needs a model before it begins.
  bool returns(Node node) const { return nodes_[node].returns; }
  std::uint64_t present_count() const { return present_count_; }
  // A returning node spends the time of `bytes` from `donor` on catching up.
  void catch_up(Node node, Node donor, std::uint64_t bytes);

  struct Sending {
    std::uint64_t exchange = 0;    // number of the mixing, from 0
    bool before_training = false;  // messages leave when the local steps begin
  };
  // Messages along `matrix`, `bytes[i]` from node i to each of its receivers. Afterwards heard(e)
  // says of each entry of the matrix, in the order of the senders of node 0, of node 1, ...,
  // the exchange whose message is mixed now: this one, an earlier one, or kNothing.
  void exchange(const topologies::MixingMatrix& matrix, const std::vector<std::uint64_t>& bytes,
                const Sending& sending, ComputePool& pool);
  static constexpr std::uint64_t kNothing = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t heard(std::uint64_t entry) const { return heard_[entry]; }
  // Of messages to `node`: those that are still to come after it went on without them.
  struct Late {
    Node from = 0;
    std::uint64_t exchange = 0;
    double arrives = 0;       // seconds; what comes to the link before it may still delay it
    bool superseded = false;  // a newer one of its sender was mixed
    double reaches = 0;       // the node's link, seconds
    std::uint64_t bytes = 0;
  };
  std::span<const Late> late(Node node) const { return nodes_[node].late; }

  // Each node of the group, ascending, gets their mean of `bytes`, as peers reduce it
  // (reduce_clock.h). Nothing is lost; who is cut off is waited for.
  void all_reduce(std::span<const Node> group, std::uint64_t bytes, std::uint64_t exchange);

  // When the last present node can go on; where none is there, when the last one gave up. Seconds.
  double now() const;
  // When each node can begin its next step, seconds.
  double ready(Node node) const { return nodes_[node].ready; }
  // Of all nodes so far.
  const Traffic& traffic() const { return traffic_; }
  // Between two steps.
  void archive(Archive& state);

 private:
  struct State {
    double ready = 0;    // next step; away: when it is back
    double started = 0;  // of the step's local work
    double finished = 0;
    double gone = 0;  // not present: when it went away
    double uplink_free = 0;
    sim::LinkQueues links;  // to this node
    double downlink_free = 0;
    std::vector<Late> late;  // by exchange
    Traffic traffic;         // of the exchange: what it sent, and what came of messages to it
    bool present = false;
    bool returns = false;
    bool known_away = false;  // missed at the step before: nobody waits for it any more
  };

  // A message that reaches the node's link: of this exchange, or a late one.
  struct Arrival {
    double time;
    bool is_late;
    std::size_t index;  // among the senders, or in State::late
    friend auto operator<=>(const Arrival&, const Arrival&) = default;
  };
  // What is on its way to a node, by the time at which it reaches its link.
  struct Incoming {
    std::vector<Arrival> arrivals;
    double missed_at = 0;  // when it is known that nothing else comes
  };

  double front() const;
  void send(const topologies::MixingMatrix& matrix, std::uint64_t bytes, const Sending& sending,
            Node node);
  sim::Network::Passage pass(const topologies::MixingMatrix& matrix, Node from, std::size_t place,
                             std::uint64_t bytes, std::uint64_t exchange) const;
  void find_incoming(const topologies::MixingMatrix& matrix,
                     const std::vector<std::uint64_t>& bytes, std::uint64_t exchange, Node node,
                     Incoming& incoming);
  void receive(const topologies::MixingMatrix& matrix, const std::vector<std::uint64_t>& bytes,
               std::uint64_t exchange, Node node);
  void take_late(std::span<const topologies::Weight> senders, std::uint64_t exchange, Node node);

  const sim::Network& network_;
  const sim::Population& population_;
  bool lossy_;
  std::vector<State> nodes_;
  std::vector<double> departs_;             // [nodes] when the first message is on its way
  std::vector<std::uint64_t> first_entry_;  // [nodes]
  std::vector<std::uint64_t> heard_;        // [messages of the matrix]
  double front_ = 0;                        // when somebody could begin the last step
  std::uint64_t present_count_ = 0;
  Traffic traffic_;
};

}  // namespace starling::gossip

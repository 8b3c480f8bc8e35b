// SPDX-License-Identifier: Apache-2.0
// Virtual time of a synchronous algorithm. Which messages come and when each node can go on follows
// from a recurrence over the steps, so no queue of events is needed and any number of threads may
// compute it: a node is ready when its own work is done and what it waits for has come.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "core/base/compute_pool.h"
#include "core/sim/network.h"
#include "core/sim/population.h"
#include "gossip/simulation/patience.h"
#include "topologies/mixing_matrix.h"

namespace starling::gossip {

using topologies::Node;

class StepClock {
 public:
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
  // Messages along `matrix`, `bytes[i]` from node i to each of its receivers. Afterwards came(e)
  // says of each entry of the matrix, in the order of the senders of node 0, of node 1, ...,
  // whether that message came in time.
  void exchange(const topologies::MixingMatrix& matrix, const std::vector<std::uint64_t>& bytes,
                const Sending& sending, ComputePool& pool);
  bool came(std::uint64_t entry) const { return came_[entry] != 0; }

  // Everybody gets everybody's mean of `bytes` by all-reduce: the cheaper of a ring and recursive
  // halving with doubling; both move 2 (P - 1) / P * bytes a node.
  void all_reduce(std::uint64_t bytes);

  // When the last present node can go on; where none is there, when the last one gave up. Seconds.
  double now() const;
  // When each node can begin its next step, seconds.
  double ready(Node node) const { return nodes_[node].ready; }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct State {
    double ready = 0;    // next step; away: when it is back
    double started = 0;  // of the step's local work
    double finished = 0;
    double uplink_free = 0;
    Patience patience;  // for the last message, after its own work
    bool present = false;
    bool returns = false;
    bool known_away = false;  // missed at the step before: nobody waits for it any more
  };

  struct Arrival {
    double time;
    std::size_t index;  // among the senders
    friend auto operator<=>(const Arrival&, const Arrival&) = default;
  };

  double front() const;
  bool arrivals(const topologies::MixingMatrix& matrix, const std::vector<std::uint64_t>& bytes,
                std::uint64_t exchange, Node node, std::vector<Arrival>& arrivals) const;
  void receive(const topologies::MixingMatrix& matrix, const std::vector<std::uint64_t>& bytes,
               std::uint64_t exchange, Node node, std::uint64_t first_entry);

  const sim::Network& network_;
  const sim::Population& population_;
  bool lossy_;
  std::vector<State> nodes_;
  std::vector<double> departs_;             // [nodes] when the first message is on its way
  std::vector<std::uint64_t> first_entry_;  // [nodes]
  std::vector<std::uint8_t> came_;          // [messages of the matrix]
  double front_ = 0;                        // when somebody could begin the last step
  std::uint64_t present_count_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace starling::gossip

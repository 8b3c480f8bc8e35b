// SPDX-License-Identifier: Apache-2.0
// A network of nodes under virtual time, as what watches it sees it: the same for synchronous and
// asynchronous algorithms.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/archive.h"
#include "core/base/compute_pool.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "gossip/simulation/experiment.h"
#include "gossip/training/traffic.h"

namespace starling::gossip {

struct Totals {
  std::uint64_t step = 0;        // local steps a node has done (asynchronous: the mean)
  std::uint64_t node_steps = 0;  // of all nodes
  double virtual_seconds = 0;
  Traffic traffic;      // real peers: only messages and bytes_sent are known
  double loss_sum = 0;  // over node steps

  void archive(Archive& state) {
    state(step);
    state(node_steps);
    state(virtual_seconds);
    traffic.archive(state);
    state(loss_sum);
  }
};

class NetworkSimulation {
 public:
  virtual ~NetworkSimulation() = default;

  // Goes on until `step` local steps are done or `until` virtual seconds have passed, whichever is
  // first; a synchronous one may go beyond by what is left of a local phase. Fails with "diverged",
  // "all-left" or "no-progress".
  [[nodiscard]] virtual Result<void> advance(std::uint64_t step, double until) = 0;

  virtual const Totals& totals() const = 0;
  // Whether it is there and honest: it is measured.
  virtual bool present(Node node) const = 0;
  virtual std::span<const float> model(Node node) const = 0;
  // What decided the course so far beyond models and totals: times, who is there.
  virtual void trace(Sha256& hash) const = 0;

  // All that decides what comes, between two calls of advance(); read into a simulation that was
  // just made of the same experiment. False: this one cannot go on in another process. One whose
  // next advance() fails may be an archive that cannot be read.
  virtual bool archive(Archive&) { return false; }
};

// "no-progress": nodes always crash before their local steps are done, so that no step would ever
// end.
Error no_progress(std::uint64_t step);
// "all-left"; `when`: "step 3" or "4.5 s".
Error all_left(const std::string& when);
// `experiment` and `pool` must outlive it.
std::unique_ptr<NetworkSimulation> make_simulation(const Experiment& experiment, ComputePool& pool);

}  // namespace starling::gossip

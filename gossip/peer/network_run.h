// SPDX-License-Identifier: Apache-2.0
// What follows from a roster alone, the same for every member: the run's settings, the model's
// beginning, the graph, and who is which node. Peers agree on it without talking.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/client/trainer_host.h"
#include "core/identity/roster.h"
#include "core/model/model.h"
#include "gossip/algorithms/make_algorithm.h"
#include "gossip/training/options.h"
#include "topologies/topology.h"

namespace starling::gossip {

// The key of a roster's settings that says that messages may be lost, "true" or "false": what
// push-sum's mass is accounted by. Peers of a coordinator always may lose some.
inline constexpr std::string_view kLossyKey = "peers.lossy";

struct NetworkRun {
  NetOptions options;
  std::shared_ptr<const model::Model> model;             // null where a trainer computes with it
  std::unique_ptr<const topologies::Topology> topology;  // null where everybody hears everybody
  Plan plan;
  model::Parameters initial;
  bool lossy = true;         // messages may be lost, members may go
  std::uint64_t spread = 1;  // exchanges until a word has reached every node
  // The graph is, so that failure detection keeps to it too (membership::Overlay).
  bool sparse = false;

  Node nodes() const { return plan.nodes; }
  const std::shared_ptr<const model::Layout>& layout() const { return initial.layout(); }
};

// Of a run whose model is built in. `shape`, `classes`: of this member's data. Fails with
// "unknown-setting" or "setting-invalid" where the settings are not those of a network, and as
// check_fit where they do not fit together. A fallback's settings say the classes themselves.
// `own`: algorithms beside the built-in ones, which must outlive the run.
[[nodiscard]] Result<NetworkRun> derive_run(const identity::Roster& roster,
                                            const data::Shape& shape, int classes,
                                            const AlgorithmCatalogue* own = nullptr);
// A member's own trainer.
struct MemberTrainer {
  client::TrainerHost& host;
  std::string member;
  std::size_t held = 0;  // values of the run's model that it has already: it makes no initial one
};
// Of a run whose model is external: asks the trainer for its tensors and the initial model; all
// whose trainers make it from the task's seed alone begin with the same. Waits for the trainer.
// Fails too as check_trainer, initial_model and TrainerHost::describe.
[[nodiscard]] Result<NetworkRun> derive_run(const identity::Roster& roster,
                                            const MemberTrainer& trainer,
                                            const std::atomic<bool>& stop);
// Whether the run's model is external.
[[nodiscard]] Result<bool> is_external(const identity::Roster& roster,
                                       const AlgorithmCatalogue* own = nullptr);

// With whom a node exchanges anything, both directions, ascending; of a topology drawn anew, at
// `step`.
std::vector<Node> neighbours_of(const topologies::Topology& topology, Node self,
                                std::uint64_t step);

// The settings of a roster for these options: every key of NET.toml, and whether messages may be
// lost.
Settings run_settings(const NetOptions& options, bool lossy);

}  // namespace starling::gossip

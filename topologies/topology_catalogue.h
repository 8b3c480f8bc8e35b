// SPDX-License-Identifier: Apache-2.0
// Topologies of one's own beside the built-in ones, by name. A program adds them and hands the
// catalogue to what makes topologies (TopologyOptions::own, gossip/tool/run_commands.h); what is
// built in does not change.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/blueprint.h"

namespace starling::topologies {

class TopologyCatalogue {
 public:
  // What the spec "NAME[:KEY=VALUE,...]" means at request.nodes(): reads the parameters by
  // request.read(), refuses by request.wrong() or impossible(), and draws only from request.rng()
  // or, in its step function, request.draws(), so that the same (spec, nodes, seed) is the same
  // topology everywhere.
  using Build = std::function<Result<Blueprint>(const Request& request)>;

  // Requires: a name without ':' that no topology has.
  void add(std::string name, Build build);

  const Build* find(std::string_view name) const;  // null: none of these
  std::vector<std::string_view> names() const;

 private:
  std::map<std::string, Build, std::less<>> topologies_;
};

// What must hold of a blueprint from outside, tried on all steps of a short period and on the first
// steps of others: messages between nodes that there are, weights that `rule` can be laid on, the
// same at every call, and undirected if it says so. "topology-own", which names the step.
[[nodiscard]] Result<void> check_blueprint(const Blueprint& blueprint, Node nodes,
                                           std::string_view rule);

}  // namespace starling::topologies

// SPDX-License-Identifier: Apache-2.0
// A family of topologies: what its spec means at a number of nodes. Of the built-in ones (family.h)
// and of one's own (topology_catalogue.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/base/settings.h"
#include "topologies/step.h"
#include "topologies/topology.h"

namespace starling::topologies {

// Streams of random numbers by step and attempt, for a step function, which outlives its request.
struct Draws {
  std::string family;
  std::uint64_t seed = 1;
  Rng operator()(std::uint64_t step = 0, std::uint32_t attempt = 0) const;
};

// What make() was asked for, the spec split into a family and its parameters.
struct Request {
  std::string_view family;
  std::string_view parameters;  // after the colon
  const TopologyOptions& options;

  Node nodes() const { return options.nodes; }
  // Of one step (0 for static topologies) and one attempt at a draw.
  Rng rng(std::uint64_t step = 0, std::uint32_t attempt = 0) const {
    return draws()(step, attempt);
  }
  Draws draws() const { return {std::string(family), options.seed}; }
  std::string spec() const;

  // "the topology 'SPEC' WHY", as topology-spec or topology-impossible.
  Error wrong(const std::string& why) const;
  Error impossible(const std::string& why) const;
  // The name with every parameter. Fails with "topology-spec".
  [[nodiscard]] Result<std::string> read(const std::vector<Field>& fields) const;
  // Fails with "topology-impossible" where a step has more messages than memory should hold.
  [[nodiscard]] Result<void> check_messages(double messages) const;
};

struct Blueprint {
  std::string name;
  std::uint64_t period = 1;                 // as Topology::period
  bool directed = false;                    // only read where the topology varies in time
  std::function<Step(std::uint64_t)> step;  // any thread; requires step < period where there is one
  // As Topology::expected_squared_factor, with the weights of the definition.
  std::optional<double> expected_squared_factor = {};

  static Blueprint fixed(std::string name, Step step);
};

}  // namespace starling::topologies

// SPDX-License-Identifier: Apache-2.0
#include "topologies/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "topologies/family.h"
#include "topologies/topology_catalogue.h"

namespace starling::topologies {
namespace {

struct Family {
  std::string_view name;
  Build build;
};

constexpr std::array kFamilies = {
    Family{"ring", ring},
    Family{"directed-ring", directed_ring},
    Family{"path", path},
    Family{"star", star},
    Family{"complete", complete},
    Family{"torus", torus},
    Family{"hypercube", hypercube},
    Family{"exponential", exponential},
    Family{"one-peer-exponential", one_peer_exponential},
    Family{"p-peer-exponential", p_peer_exponential},
    Family{"one-peer-hypercube", one_peer_hypercube},
    Family{"hyper-hypercube", hyper_hypercube},
    Family{"base-graph", base_graph},
    Family{"random-regular", random_regular},
    Family{"erdos-renyi", erdos_renyi},
    Family{"watts-strogatz", watts_strogatz},
    Family{"barabasi-albert", barabasi_albert},
    Family{"equistatic", equistatic},
    Family{"equidyn", equidyn},
    Family{"random-matching", random_matching},
    Family{"epidemic", epidemic},
    Family{"d-cliques", d_cliques},
    Family{"file", file_graph},
};

using Matrix = std::shared_ptr<const MixingMatrix>;

class StaticTopology final : public Topology {
 public:
  StaticTopology(std::string name, MixingMatrix matrix)
      : name_(std::move(name)),
        matrix_(std::make_shared<const MixingMatrix>(std::move(matrix))),
        directed_(is_directed(*matrix_)) {}

  const std::string& name() const override { return name_; }
  Node nodes() const override { return matrix_->nodes(); }
  bool directed() const override { return directed_; }
  std::uint64_t period() const override { return 1; }
  Matrix at(std::uint64_t) const override { return matrix_; }

 private:
  std::string name_;
  Matrix matrix_;
  bool directed_;
};

// What make() found lawful for its first steps is promised for all, so a step that fails is a bug.
Matrix laid(const Blueprint& blueprint, Node nodes, std::string_view rule, std::uint64_t step) {
  Step made = blueprint.step(step);
  STARLING_CHECK(made.diagonal.size() == nodes &&
                 std::ranges::all_of(made.entries, [nodes](const MixingEntry& entry) {
                   return entry.receiver < nodes && entry.sender < nodes;
                 }));
  Result<MixingMatrix> matrix = lay(std::move(made), rule);
  STARLING_CHECK(matrix.has_value());
  return std::make_shared<const MixingMatrix>(std::move(*matrix));
}

class PeriodicTopology final : public Topology {
 public:
  PeriodicTopology(Blueprint blueprint, Node nodes, std::string rule)
      : blueprint_(std::move(blueprint)),
        nodes_(nodes),
        rule_(std::move(rule)),
        slots_(blueprint_.period) {}

  const std::string& name() const override { return blueprint_.name; }
  Node nodes() const override { return nodes_; }
  bool directed() const override { return blueprint_.directed; }
  std::uint64_t period() const override { return blueprint_.period; }
  Matrix at(std::uint64_t step) const override {
    Slot& slot = slots_[step % slots_.size()];
    std::call_once(slot.once,
                   [&] { slot.matrix = laid(blueprint_, nodes_, rule_, step % slots_.size()); });
    return slot.matrix;
  }

 private:
  struct Slot {
    std::once_flag once;
    Matrix matrix;
  };
  Blueprint blueprint_;
  Node nodes_;
  std::string rule_;
  mutable std::vector<Slot> slots_;  // filled when first asked for
};

class DrawnTopology final : public Topology {
 public:
  DrawnTopology(Blueprint blueprint, Node nodes, std::string rule)
      : blueprint_(std::move(blueprint)), nodes_(nodes), rule_(std::move(rule)) {}

  const std::string& name() const override { return blueprint_.name; }
  Node nodes() const override { return nodes_; }
  bool directed() const override { return blueprint_.directed; }
  std::uint64_t period() const override { return 0; }
  std::optional<double> expected_squared_factor() const override {
    return rule_ == "own" ? blueprint_.expected_squared_factor : std::nullopt;
  }
  Matrix at(std::uint64_t step) const override {
    {
      const std::lock_guard lock(mutex_);
      if (last_ && last_step_ == step) return last_;
    }
    Matrix matrix = laid(blueprint_, nodes_, rule_, step);
    const std::lock_guard lock(mutex_);
    last_ = matrix;
    last_step_ = step;
    return matrix;
  }

 private:
  Blueprint blueprint_;
  Node nodes_;
  std::string rule_;
  mutable std::mutex mutex_;
  mutable Matrix last_;  // every node of a simulation asks for the same step
  mutable std::uint64_t last_step_ = 0;
};

Result<void> check_options(const TopologyOptions& options) {
  if (std::ranges::find(kMixingRules, options.mixing) == kMixingRules.end()) {
    return wrong_setting("topology-spec", "the mixing rule '" + printable(options.mixing) +
                                              "' is not known; the rules are " +
                                              join_names(kMixingRules) +
                                              suggestion(options.mixing, kMixingRules));
  }
  if (options.nodes == 0 && !options.spec.starts_with("file:")) {
    return wrong_setting("topology-impossible", "a topology needs at least one node");
  }
  if (options.nodes > kNodesMax) {
    return wrong_setting(
        "topology-impossible",
        fmt::format("a topology has at most {} nodes, not {}", kNodesMax, options.nodes));
  }
  return {};
}

Result<Blueprint> build(const TopologyOptions& options) {
  const std::string_view spec = options.spec;
  const std::size_t colon = std::min(spec.find(':'), spec.size());
  const Request request{spec.substr(0, colon), spec.substr(std::min(colon + 1, spec.size())),
                        options};
  const TopologyCatalogue::Build* own = options.own ? options.own->find(request.family) : nullptr;
  if (own != nullptr) {
    STARLING_ASSIGN(Blueprint blueprint, (*own)(request));
    STARLING_TRY(check_blueprint(blueprint, options.nodes, options.mixing));
    return blueprint;
  }
  const auto family = std::ranges::find(kFamilies, request.family, &Family::name);
  if (family == kFamilies.end()) {
    auto names = built_in_topologies();
    if (options.own != nullptr) std::ranges::copy(options.own->names(), std::back_inserter(names));
    return request.wrong("is not known; there are " + join_names(names) +
                         suggestion(request.family, names));
  }
  return family->build(request);
}

// One step may suit a rule by luck that another one does not suit.
Result<void> check_rule(const Blueprint& blueprint, std::string_view rule) {
  if (rule != "metropolis" || blueprint.period != 0 || !blueprint.directed) return {};
  return wrong_setting("topology-spec",
                       "the mixing rule metropolis needs an undirected graph, and " +
                           blueprint.name + " draws directed ones; take push, uniform or own");
}

void deduplicate(std::vector<Edge>& edges) {
  if (!std::ranges::is_sorted(edges)) std::ranges::sort(edges);
  edges.erase(std::ranges::unique(edges).begin(), edges.end());
}

}  // namespace

std::vector<std::string_view> built_in_topologies() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

Result<std::unique_ptr<const Topology>> Topology::make(const TopologyOptions& options) {
  STARLING_TRY(check_options(options));
  STARLING_ASSIGN(Blueprint blueprint, build(options));
  STARLING_TRY(check_rule(blueprint, options.mixing));
  STARLING_ASSIGN(MixingMatrix first, lay(blueprint.step(0), options.mixing));
  std::unique_ptr<const Topology> topology;
  if (blueprint.period == 1) {
    topology = std::make_unique<StaticTopology>(std::move(blueprint.name), std::move(first));
  } else if (blueprint.period > 1) {
    topology =
        std::make_unique<PeriodicTopology>(std::move(blueprint), options.nodes, options.mixing);
  } else {
    topology = std::make_unique<DrawnTopology>(std::move(blueprint), options.nodes, options.mixing);
  }
  return topology;
}

Result<graph::Graph> union_graph(const Topology& topology, std::uint64_t steps) {
  constexpr std::size_t kCrowded = 4'000'000;
  const bool directed = topology.directed();
  std::vector<Edge> edges;
  std::size_t crowded = kCrowded;  // so many are sorted to see which stand twice
  const std::uint64_t end = topology.period() > 0 ? topology.period() : steps;
  for (std::uint64_t step = 0; step < end; ++step) {
    const auto matrix = topology.at(step);
    for (Node receiver = 0; receiver < matrix->nodes(); ++receiver) {
      for (const Weight& sender : matrix->senders(receiver)) {
        if (directed || sender.node < receiver) edges.push_back({sender.node, receiver});
      }
    }
    if (edges.size() > crowded) {
      deduplicate(edges);
      crowded = 2 * edges.size() + kCrowded;
    }
  }
  deduplicate(edges);
  return graph::Graph::make(topology.nodes(), directed, std::move(edges));
}

}  // namespace starling::topologies

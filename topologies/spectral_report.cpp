// SPDX-License-Identifier: Apache-2.0
#include "topologies/spectral_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/graph/traversal.h"
#include "topologies/cayley.h"
#include "topologies/contraction.h"

namespace starling::topologies {
namespace {

// What an exact diameter may take, in visited edges: about a second.
constexpr double kVisitsMax = 4e8;
// Steps of a topology drawn anew that stand for all; fewer where they are large.
constexpr double kDrawnSteps = 16;
constexpr double kDrawnMessages = 4e6;

std::uint64_t steps_seen(const Topology& topology) {
  if (topology.period() > 0) return topology.period();
  const double messages = std::max(1.0, static_cast<double>(topology.at(0)->messages()));
  return static_cast<std::uint64_t>(std::clamp(kDrawnMessages / messages, 4.0, kDrawnSteps));
}

void count_messages(const Topology& topology, std::uint64_t steps, SpectralReport& report) {
  std::uint64_t messages = 0;
  std::size_t least = topology.nodes();
  std::size_t most = 0;
  for (std::uint64_t t = 0; t < steps; ++t) {
    const auto matrix = topology.at(t);
    messages += matrix->messages();
    for (Node i = 0; i < matrix->nodes(); ++i) {
      least = std::min(least, matrix->receivers(i).size());
      most = std::max(most, matrix->receivers(i).size());
    }
  }
  const double a_step = static_cast<double>(messages) / static_cast<double>(steps);
  report.edges = static_cast<std::uint64_t>(std::llround(report.directed ? a_step : a_step / 2));
  report.degree_min = static_cast<double>(least);
  report.degree_mean = a_step / topology.nodes();
  report.degree_max = static_cast<double>(most);
}

Figure diameter_of(const graph::Graph& graph, bool vertex_transitive) {
  if (vertex_transitive) return Figure{static_cast<double>(graph::eccentricity(graph, 0))};
  if (graph.edges() + 1 == graph.nodes() && !graph.directed()) {
    return Figure{static_cast<double>(graph::diameter_at_least(graph, 2))};  // a tree
  }
  const double visits = static_cast<double>(graph.nodes()) *
                        (static_cast<double>(graph.nodes()) +
                         (graph.directed() ? 1.0 : 2.0) * static_cast<double>(graph.edges()));
  if (visits <= kVisitsMax) return Figure{static_cast<double>(*graph::diameter(graph))};
  return Figure{static_cast<double>(graph::diameter_at_least(graph)), Certainty::kBound};
}

// The least number of steps with slem^steps <= error.
std::optional<Figure> rounds_to(double error, const Figure& slem,
                                const std::optional<std::uint64_t>& finite_time) {
  constexpr double kRounding = 1e-9;
  std::optional<Figure> rounds;
  if (slem.value <= error) {
    rounds = Figure{1, slem.certainty};
  } else if (slem.value < 1) {
    rounds = Figure{std::ceil(std::log(error) / std::log(slem.value) - kRounding), slem.certainty};
  }
  if (finite_time &&
      (!rounds || slem.value == 0 || rounds->value > static_cast<double>(*finite_time))) {
    rounds = Figure{static_cast<double>(*finite_time), slem.certainty};
  }
  return rounds;
}

}  // namespace

double SpectralReport::spectral_gap() const { return slem ? 1 - slem->value : 0; }

Result<SpectralReport> analyse(const Topology& topology, const ReportOptions& options) {
  if (!(options.consensus_error > 0 && options.consensus_error < 1)) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("the consensus error {} is not between 0 and 1", options.consensus_error));
  }
  SpectralReport report;
  report.name = topology.name();
  report.nodes = topology.nodes();
  report.directed = topology.directed();
  report.time_varying = topology.time_varying();
  report.period = topology.period();
  const std::uint64_t steps = steps_seen(topology);
  count_messages(topology, steps, report);
  STARLING_ASSIGN(const graph::Graph graph, union_graph(topology, steps));
  report.connected = graph::is_connected(graph);
  if (topology.nodes() == 1) {
    report.diameter = Figure{};
    report.slem = Figure{};
    report.finite_time = 0;
    report.rounds_to_consensus = Figure{};
    return report;
  }
  const std::optional<Group> group = symmetry(topology);
  if (report.connected && report.period > 0) {
    report.diameter = diameter_of(graph, group.has_value());
  }
  // Of directed graphs eigenvalues tell: a part that only listens does not keep apart.
  const bool together = report.connected || report.directed || report.period == 0;
  const Contraction found = contraction(topology, group, together);
  report.slem = found.slem;
  report.lambda_min = found.lambda_min;
  report.lambda_2 = found.lambda_2;
  if (together) report.finite_time = finite_time(topology);
  if (report.finite_time && report.slem) report.slem->value = 0;
  if (report.slem) {
    report.rounds_to_consensus =
        rounds_to(options.consensus_error, *report.slem, report.finite_time);
  }
  return report;
}

}  // namespace starling::topologies

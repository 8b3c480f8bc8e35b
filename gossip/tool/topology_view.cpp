// SPDX-License-Identifier: Apache-2.0
#include "gossip/tool/topology_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base/counted.h"
#include "core/report/graph_drawing.h"

namespace starling::gossip {
namespace {

namespace json = boost::json;
using topologies::Certainty;
using topologies::Figure;
using topologies::MixingMatrix;
using topologies::Node;
using topologies::Robustness;
using topologies::SpectralReport;
using topologies::Topology;
using topologies::Weight;

constexpr Node kDenseNodesMax = 1000;
constexpr std::uint64_t kPanelsMax = 8;
constexpr std::uint64_t kDrawnPanels = 4;  // of a topology drawn again for every step

using Named = std::pair<std::string_view, const std::optional<Figure>*>;

std::array<Named, 4> figures(const SpectralReport& report) {
  return {Named{"diameter", &report.diameter}, Named{"slem", &report.slem},
          Named{"lambda_min", &report.lambda_min},
          Named{"rounds_to_consensus", &report.rounds_to_consensus}};
}

json::array named(const SpectralReport& report, Certainty certainty) {
  json::array names;
  for (const auto& [name, figure] : figures(report)) {
    if (*figure && (*figure)->certainty == certainty) names.emplace_back(name);
  }
  // The gap is as certain as what it comes from.
  if (report.slem && report.slem->certainty == certainty) names.emplace_back("spectral_gap");
  return names;
}

json::value real(const std::optional<Figure>& figure) {
  return figure ? json::value(figure->value) : json::value(nullptr);
}

json::value whole(const std::optional<Figure>& figure) {
  return figure ? json::value(static_cast<std::uint64_t>(figure->value)) : json::value(nullptr);
}

// `sign`: how a bound reads, "at least" or "at most".
std::string_view remark(const Figure& figure, std::string_view sign) {
  switch (figure.certainty) {
    case Certainty::kBound:
      return sign;
    case Certainty::kSampled:
      return "from drawn steps";
    default:
      return "";
  }
}

// All of a whole number; else six digits, of what is left of 1 where those would all be nines.
std::string six_digits(double value) {
  constexpr double kExactIntegers = 9e15;
  if (value == std::floor(value) && std::abs(value) < kExactIntegers) {
    return fmt::format("{:.0f}", value);
  }
  constexpr double kRounding = 1e-12;
  if (std::abs(value) < kRounding) return "0";
  const double rest = 1 - value;
  if (rest > 0 && rest < 1e-4) return fmt::format("1 - {:.6g}", rest);
  return fmt::format("{:.6g}", value);
}

class Lines {
 public:
  void add(std::string_view what, const std::string& value, std::string_view note = "") {
    fmt::format_to(std::back_inserter(text_), "{:<22}{}{}{}{}\n", what, value,
                   note.empty() ? "" : "  (", note, note.empty() ? "" : ")");
  }
  void add(std::string_view what, const std::optional<Figure>& figure, std::string_view sign,
           std::string_view unit = "", std::string_view missing = "-") {
    add(what,
        figure ? six_digits(figure->value) + (unit.empty() ? "" : " ") + std::string(unit)
               : std::string(missing),
        figure ? remark(*figure, sign) : "");
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

std::string period_text(const SpectralReport& report) {
  if (report.period == 0) return "drawn again for every step";
  return report.period == 1 ? "static" : fmt::format("repeats after {} steps", report.period);
}

void add_number(std::string& text, double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text.append(buffer.data(), end.ptr);
}

std::string dense_csv(const MixingMatrix& matrix) {
  std::string text;
  std::vector<double> row(matrix.nodes());
  for (Node i = 0; i < matrix.nodes(); ++i) {
    std::ranges::fill(row, 0.0);
    row[i] = matrix.self(i);
    for (const Weight& sender : matrix.senders(i)) row[sender.node] = sender.weight;
    for (Node j = 0; j < matrix.nodes(); ++j) {
      if (j > 0) text += ',';
      add_number(text, row[j]);
    }
    text += '\n';
  }
  return text;
}

std::string sparse_csv(const MixingMatrix& matrix) {
  std::string text = "receiver,sender,weight\n";
  const auto add = [&text](Node receiver, Node sender, double weight) {
    if (weight == 0) return;
    fmt::format_to(std::back_inserter(text), "{},{},", receiver, sender);
    add_number(text, weight);
    text += '\n';
  };
  for (Node i = 0; i < matrix.nodes(); ++i) {
    add(i, i, matrix.self(i));
    for (const Weight& sender : matrix.senders(i)) add(i, sender.node, sender.weight);
  }
  return text;
}

Result<graph::Graph> graph_of(const MixingMatrix& matrix, bool directed) {
  std::vector<graph::Edge> edges;
  for (Node i = 0; i < matrix.nodes(); ++i) {
    for (const Weight& sender : matrix.senders(i)) {
      if (directed || sender.node < i) edges.push_back({sender.node, i});
    }
  }
  return graph::Graph::make(matrix.nodes(), directed, std::move(edges));
}

std::size_t common_neighbours(const graph::Graph& graph, Node a, Node b) {
  std::vector<Node> common;
  std::ranges::set_intersection(graph.successors(a), graph.successors(b),
                                std::back_inserter(common));
  return common.size();
}

// The clique of each node: who shares with it nearly all of a clique of m, less the two themselves
// (some cliques are one node smaller).
std::vector<Node> cliques_of(const graph::Graph& graph, Node m) {
  constexpr Node kNone = std::numeric_limits<Node>::max();
  const std::size_t shared = m > 4 ? m - 3 : 1;
  std::vector<Node> clique(graph.nodes(), kNone);
  Node count = 0;
  for (Node i = 0; i < graph.nodes(); ++i) {
    if (clique[i] != kNone) continue;
    clique[i] = count;
    for (const Node j : graph.successors(i)) {
      if (clique[j] == kNone && common_neighbours(graph, i, j) >= shared) clique[j] = count;
    }
    ++count;
  }
  return clique;
}

// The number after `key` in a name: 8 of "torus:4x8" after "x".
Node parameter(std::string_view name, std::string_view key) {
  Node value = 1;
  const std::string_view text = name.substr(std::min(name.find(key), name.size() - 1));
  std::from_chars(text.data() + key.size(), text.data() + text.size(), value);
  return value;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

report::LayoutOptions layout_of(const Topology& topology, const graph::Graph& graph) {
  constexpr Node kFewNodes = 2000;  // as many as are drawn
  using report::Layout;
  const std::string_view name = topology.name();
  const std::string_view family = name.substr(0, name.find(':'));
  if (family == "torus") return {Layout::kGrid, parameter(name, "x"), {}};
  if (family == "path") return {Layout::kLine, 1, {}};
  if (family == "star") return {Layout::kStar, 1, {}};
  if (is_one_of(family, {"hypercube", "one-peer-hypercube"})) return {Layout::kHypercube, 1, {}};
  const bool loosely_joined = name.ends_with("inter=ring") || name.ends_with("inter=fractal");
  if (family == "d-cliques" && !loosely_joined && graph.nodes() <= kFewNodes) {
    return {Layout::kGroups, 1, cliques_of(graph, parameter(name, "m="))};
  }
  if (is_one_of(family,
                {"random-regular", "erdos-renyi", "barabasi-albert", "d-cliques", "file"})) {
    return {Layout::kForce, 1, {}};
  }
  return {};
}

std::uint64_t panels_of(const Topology& topology) {
  return topology.period() == 0 ? kDrawnPanels : std::min(topology.period(), kPanelsMax);
}

std::string caption_of(const Topology& topology) {
  if (topology.period() == 0) return "the first steps; every step is drawn again";
  if (topology.period() <= kPanelsMax) return "";
  return fmt::format("{} of {} steps", kPanelsMax, topology.period());
}

std::string caption_of(const Topology& topology, bool some_left) {
  std::string steps = caption_of(topology);
  if (!some_left) return steps;
  return steps + (steps.empty() ? "" : "; ") + "hollow: not there at the end, or lying";
}

}  // namespace

json::object to_json(const SpectralReport& report) {
  json::object object;
  object["name"] = report.name;
  object["nodes"] = report.nodes;
  object["edges"] = report.edges;
  object["directed"] = report.directed;
  object["time_varying"] = report.time_varying;
  object["period"] = report.period;
  object["degree"] = {{"min", static_cast<std::uint64_t>(report.degree_min)},
                      {"mean", report.degree_mean},
                      {"max", static_cast<std::uint64_t>(report.degree_max)}};
  object["diameter"] = whole(report.diameter);
  object["connected"] = report.connected;
  object["slem"] = real(report.slem);
  object["spectral_gap"] = report.slem ? json::value(report.spectral_gap()) : json::value(nullptr);
  object["rounds_to_consensus"] = whole(report.rounds_to_consensus);
  object["lambda_min"] = real(report.lambda_min);
  object["finite_time"] =
      report.finite_time ? json::value(*report.finite_time) : json::value(nullptr);
  object["bounds"] = named(report, Certainty::kBound);
  object["sampled"] = named(report, Certainty::kSampled);
  return object;
}

std::string to_text(const SpectralReport& report, double consensus_error) {
  Lines lines;
  lines.add("topology", report.name);
  lines.add("nodes", fmt::format("{}", report.nodes));
  lines.add("edges", fmt::format("{}{}{}", report.edges, report.directed ? " directed" : "",
                                 report.time_varying ? ", mean of a step" : ""));
  lines.add("in time", period_text(report));
  lines.add("messages of a node",
            fmt::format("{:.6g} to {:.6g} a step, mean {:.6g}", report.degree_min,
                        report.degree_max, report.degree_mean));
  lines.add("connected", report.connected ? "yes" : "no");
  lines.add("diameter", report.diameter, "at least");
  lines.add(report.time_varying ? "contraction a step" : "slem", report.slem, "at least");
  std::optional<Figure> gap = report.slem;
  if (gap) gap->value = report.spectral_gap();
  lines.add("spectral gap", gap, "at most");
  if (!report.time_varying) lines.add("smallest eigenvalue", report.lambda_min, "at most");
  lines.add("exact after",
            report.finite_time ? counted(*report.finite_time, "step") : std::string("never"));
  lines.add(fmt::format("to an error of {:g}", consensus_error), report.rounds_to_consensus,
            "at least",
            report.rounds_to_consensus && report.rounds_to_consensus->value == 1 ? "step" : "steps",
            "never");
  return std::move(lines).take();
}

json::value to_json(const std::optional<Robustness>& robustness) {
  if (!robustness) return nullptr;
  return {{"mu2", robustness->mu2.value},
          {"clip_sure", robustness->clip_sure},
          {"remove_sure", robustness->remove_sure},
          {"possible", robustness->possible}};
}

std::string to_text(const std::optional<Robustness>& robustness) {
  Lines lines;
  if (!robustness) {
    lines.add("lying neighbours", "-", "known for static graphs with symmetric weights only");
    return std::move(lines).take();
  }
  lines.add("mu2", robustness->mu2, "at most");
  lines.add("lying neighbours",
            fmt::format("clip bears {} for sure, remove {}", robustness->clip_sure,
                        robustness->remove_sure),
            fmt::format("{} or more of each node are too many for any rule to be sure",
                        robustness->possible + 1));
  return std::move(lines).take();
}

std::string to_csv(const MixingMatrix& matrix) {
  return matrix.nodes() <= kDenseNodesMax ? dense_csv(matrix) : sparse_csv(matrix);
}

Result<std::string> draw(const Topology& topology, std::vector<bool> present) {
  std::vector<graph::Graph> graphs;
  for (std::uint64_t t = 0; t < panels_of(topology); ++t) {
    STARLING_ASSIGN(graph::Graph graph, graph_of(*topology.at(t), topology.directed()));
    graphs.push_back(std::move(graph));
  }
  std::vector<bool> hollow;
  if (std::ranges::count(present, false) > 0) {
    present.flip();
    hollow = std::move(present);
  }
  const report::GraphDrawing drawing{
      layout_of(topology, graphs[0]),
      fmt::format("{}, {}", topology.name(), counted(topology.nodes(), "node")),
      caption_of(topology, !hollow.empty()), std::move(hollow)};
  std::vector<report::Panel> panels;
  for (std::size_t t = 0; t < graphs.size(); ++t) {
    panels.push_back(
        {graphs[t], topology.time_varying() ? fmt::format("step {}", t) : std::string()});
  }
  return report::draw_graphs(panels, drawing);
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "core/report/graph_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace starling::report {
namespace {

using graph::Graph;
using graph::Node;

Position on_circle(std::size_t place, std::size_t places) {
  const double angle =
      2 * std::numbers::pi * static_cast<double>(place) / static_cast<double>(places);
  return {std::sin(angle), -std::cos(angle)};
}

std::vector<Position> circle(Node nodes) {
  std::vector<Position> points(nodes);
  for (Node i = 0; i < nodes; ++i) points[i] = on_circle(i, nodes);
  return points;
}

std::vector<Position> grid(Node nodes, Node columns) {
  std::vector<Position> points(nodes);
  for (Node i = 0; i < nodes; ++i) {
    const Node row = i / columns;
    points[i] = {static_cast<double>(i % columns), static_cast<double>(row)};
  }
  return points;
}

std::vector<Position> line(Node nodes) {
  constexpr Node kOneRow = 12;
  const auto columns = nodes <= kOneRow
                           ? nodes
                           : static_cast<Node>(std::ceil(std::sqrt(static_cast<double>(nodes))));
  std::vector<Position> points = grid(nodes, columns);
  for (Node i = 0; i < nodes; ++i) {
    if (i / columns % 2 == 1) points[i].x = columns - 1 - points[i].x;
  }
  return points;
}

std::vector<Position> star(const Graph& graph) {
  Node hub = 0;
  for (Node i = 1; i < graph.nodes(); ++i) {
    if (graph.successors(i).size() > graph.successors(hub).size()) hub = i;
  }
  std::vector<Position> points(graph.nodes());
  for (Node i = 0, place = 0; i < graph.nodes(); ++i) {
    if (i != hub) points[i] = on_circle(place++, graph.nodes() - 1);
  }
  return points;
}

std::vector<Position> hypercube(Node nodes) {
  constexpr std::array<Position, 4> kAxes = {{{1, 0}, {0, 1}, {0.42, -0.36}, {1.75, -0.72}}};
  if (!std::has_single_bit(nodes) || nodes > 1U << kAxes.size()) return circle(nodes);
  std::vector<Position> points(nodes);
  for (Node i = 0; i < nodes; ++i) {
    for (std::size_t bit = 0; bit < kAxes.size(); ++bit) {
      if ((i >> bit & 1) == 0) continue;
      points[i].x += kAxes[bit].x;
      points[i].y += kAxes[bit].y;
    }
  }
  return points;
}

// Every pair repels with k^2 / d, every edge attracts with d^2 / k, and the middle a little, so
// that parts without edges between them stay in sight. Steps shrink as they go on.
class ForceLayout {
 public:
  explicit ForceLayout(const Graph& graph)
      : graph_(graph), points_(circle(graph.nodes())), moves_(graph.nodes()) {
    Rng rng({.seed = 1, .purpose = Purpose::kTopology, .node = hash_name("layout")});
    for (Position& point : points_) point = {rng.uniform(-1, 1), rng.uniform(-1, 1)};
    ideal_ = 2 / std::sqrt(static_cast<double>(graph.nodes()));
  }

  std::vector<Position> run() && {
    constexpr int kIterations = 400;
    for (int i = 0; i < kIterations; ++i) {
      std::ranges::fill(moves_, Position{});
      repel();
      attract();
      const double reach = 0.2 * std::pow(1 - static_cast<double>(i) / kIterations, 2);
      for (Node node = 0; node < graph_.nodes(); ++node) step(node, reach);
    }
    return std::move(points_);
  }

 private:
  void push(Node node, double dx, double dy, double force) {
    moves_[node].x += force * dx;
    moves_[node].y += force * dy;
  }
  void repel() {
    constexpr double kTouching = 1e-9;
    for (Node i = 0; i < graph_.nodes(); ++i) {
      for (Node j = i + 1; j < graph_.nodes(); ++j) {
        const double dx = points_[i].x - points_[j].x;
        const double dy = points_[i].y - points_[j].y;
        const double force = ideal_ * ideal_ / std::max(dx * dx + dy * dy, kTouching);
        push(i, dx, dy, force);
        push(j, -dx, -dy, force);
      }
    }
  }
  void attract() {
    constexpr double kMiddle = 0.3;
    for (Node i = 0; i < graph_.nodes(); ++i) {
      push(i, points_[i].x, points_[i].y, -kMiddle);
      for (const Node j : graph_.successors(i)) {
        if (!graph_.directed() && j < i) continue;
        const double dx = points_[i].x - points_[j].x;
        const double dy = points_[i].y - points_[j].y;
        const double force = -std::sqrt(dx * dx + dy * dy) / ideal_;
        push(i, dx, dy, force);
        push(j, -dx, -dy, force);
      }
    }
  }
  void step(Node node, double reach) {
    const Position& move = moves_[node];
    const double length = std::sqrt(move.x * move.x + move.y * move.y);
    const double scale = length > reach ? reach / length : 1;
    points_[node].x += scale * move.x;
    points_[node].y += scale * move.y;
  }

  const Graph& graph_;
  std::vector<Position> points_;
  std::vector<Position> moves_;
  double ideal_ = 1;  // length of an edge
};

// Into the unit square, in the middle, without distortion.
void fit(std::vector<Position>& points) {
  const auto [left, right] = std::ranges::minmax(points, {}, &Position::x);
  const auto [top, bottom] = std::ranges::minmax(points, {}, &Position::y);
  const double extent = std::max(right.x - left.x, bottom.y - top.y);
  const double scale = extent > 0 ? 1 / extent : 0;
  const double x = (left.x + right.x) / 2;
  const double y = (top.y + bottom.y) / 2;
  for (Position& point : points) point = {0.5 + scale * (point.x - x), 0.5 + scale * (point.y - y)};
}

std::vector<Position> groups(const std::vector<Node>& group_of) {
  std::vector<std::size_t> sizes(std::size_t{std::ranges::max(group_of)} + 1);
  for (const Node group : group_of) ++sizes[group];
  // Neighbouring circles leave as much between them as they take.
  const double radius =
      sizes.size() == 1
          ? 1
          : std::min(0.4, std::numbers::pi / (2.6 * static_cast<double>(sizes.size())));
  std::vector<std::size_t> places(sizes.size());
  std::vector<Position> points;
  for (const Node group : group_of) {
    const Position middle = sizes.size() == 1 ? Position{} : on_circle(group, sizes.size());
    const Position at = on_circle(places[group]++, sizes[group]);
    points.push_back({middle.x + radius * at.x, middle.y + radius * at.y});
  }
  return points;
}

std::vector<Position> place(const Graph& graph, const LayoutOptions& options) {
  switch (options.layout) {
    case Layout::kLine:
      return line(graph.nodes());
    case Layout::kGrid:
      return grid(graph.nodes(), options.columns);
    case Layout::kStar:
      return star(graph);
    case Layout::kHypercube:
      return hypercube(graph.nodes());
    case Layout::kGroups:
      return groups(options.groups);
    case Layout::kForce:
      return ForceLayout(graph).run();
    case Layout::kCircle:
      break;
  }
  return circle(graph.nodes());
}

}  // namespace

std::vector<Position> layout_nodes(const Graph& graph, const LayoutOptions& options) {
  STARLING_CHECK(options.columns >= 1);
  STARLING_CHECK(options.layout != Layout::kGroups || options.groups.size() == graph.nodes());
  std::vector<Position> points = place(graph, options);
  fit(points);
  return points;
}

}  // namespace starling::report

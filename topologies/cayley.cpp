// SPDX-License-Identifier: Apache-2.0
#include "topologies/cayley.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace starling::topologies {
namespace {

constexpr double kSameWeight = 1e-15;  // diagonals are what rounding left of 1

// e^(2 pi i m / n) for m = 0 .. n-1; exact at the quarters, so that what cancels gives 0.
std::vector<std::complex<double>> roots_of_unity(Node n) {
  std::vector<std::complex<double>> roots(n);
  for (std::uint64_t m = 0; m < n; ++m) {
    // The angle is folded into the first eighth, where sine and cosine are most accurate.
    const std::uint64_t eighths = 8 * m / n;
    const std::uint64_t quarter = (eighths + 1) / 2;
    const double rest = (4.0 * static_cast<double>(m) - static_cast<double>(quarter * n)) / n;
    const double angle = rest * std::numbers::pi / 2;
    const double c = std::cos(angle);
    const double s = std::sin(angle);
    switch (quarter % 4) {
      case 0:
        roots[m] = {c, s};
        break;
      case 1:
        roots[m] = {-s, c};
        break;
      case 2:
        roots[m] = {-c, -s};
        break;
      default:
        roots[m] = {s, -c};
        break;
    }
  }
  return roots;
}

bool is_invariant(const MixingMatrix& matrix, const Group& group) {
  std::vector<double> weight(matrix.nodes(), -1.0);
  for (const Weight& sender : matrix.senders(0)) weight[sender.node] = sender.weight;
  for (Node i = 1; i < matrix.nodes(); ++i) {
    if (matrix.senders(i).size() != matrix.senders(0).size()) return false;
    if (std::abs(matrix.self(i) - matrix.self(0)) > kSameWeight) return false;
    for (const Weight& sender : matrix.senders(i)) {
      const double expected = weight[group.difference(i, sender.node)];
      if (!(std::abs(sender.weight - expected) <= kSameWeight)) return false;
    }
  }
  return true;
}

std::vector<Group> candidates(Node nodes) {
  std::vector<Group> groups{{nodes, 1, false}};
  if (std::has_single_bit(nodes)) groups.push_back({nodes, 1, true});
  for (Node rows = 2; rows <= nodes / 2; ++rows) {
    if (nodes % rows == 0) groups.push_back({rows, nodes / rows, false});
  }
  return groups;
}

}  // namespace

Node Group::difference(Node i, Node j) const {
  if (bits) return i ^ j;
  if (columns == 1) return j >= i ? j - i : j + rows - i;
  const Node row = (j / columns + rows - i / columns) % rows;
  return row * columns + (j % columns + columns - i % columns) % columns;
}

std::optional<Group> symmetry(const Topology& topology) {
  if (topology.period() == 0) return std::nullopt;
  for (const Group& group : candidates(topology.nodes())) {
    bool invariant = true;
    for (std::uint64_t t = 0; t < topology.period() && invariant; ++t) {
      invariant = is_invariant(*topology.at(t), group);
    }
    if (invariant) return group;
  }
  return std::nullopt;
}

std::vector<std::complex<double>> spectrum(const MixingMatrix& matrix, const Group& group) {
  const auto row_roots = roots_of_unity(group.bits ? 1 : group.rows);
  const auto column_roots = roots_of_unity(group.columns);
  const auto character = [&](Node k, Node o) -> std::complex<double> {
    if (group.bits) return std::popcount(k & o) % 2 == 0 ? 1.0 : -1.0;
    if (group.columns == 1) return row_roots[std::uint64_t{k} * o % group.rows];
    const std::uint64_t row = std::uint64_t{k / group.columns} * (o / group.columns);
    const std::uint64_t column = std::uint64_t{k % group.columns} * (o % group.columns);
    return row_roots[row % group.rows] * column_roots[column % group.columns];
  };
  std::vector<std::complex<double>> values(matrix.nodes(), matrix.self(0));
  for (Node k = 0; k < matrix.nodes(); ++k) {
    for (const Weight& sender : matrix.senders(0)) {
      values[k] += sender.weight * character(k, sender.node);
    }
  }
  return values;
}

}  // namespace starling::topologies

// SPDX-License-Identifier: Apache-2.0
// Static topologies with closed forms. Where one degenerates at few nodes (a ring of two), parallel
// edges are one edge, and the weights are Metropolis-Hastings.
#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "topologies/family.h"

namespace starling::topologies {
namespace {

constexpr std::string_view kAnyNumber = "base-graph is exact for every number";

Result<Blueprint> undirected(const Request& request, const std::vector<Edge>& edges) {
  STARLING_ASSIGN(std::string name, request.read({}));
  return Blueprint::fixed(std::move(name), metropolis(request.nodes(), edges));
}

struct Sides {
  Node rows = 0;
  Node columns = 0;
};

// "8x8"
std::optional<Sides> parse_sides(std::string_view text) {
  Sides sides;
  const char* end = text.data() + text.size();
  const auto rows = std::from_chars(text.data(), end, sides.rows);
  if (rows.ec != std::errc() || rows.ptr == end || *rows.ptr != 'x') return std::nullopt;
  const auto columns = std::from_chars(rows.ptr + 1, end, sides.columns);
  if (columns.ec != std::errc() || columns.ptr != end) return std::nullopt;
  return sides;
}

// The most square one with both sides at least 3.
std::optional<Sides> most_square(Node nodes) {
  std::optional<Sides> best;
  for (std::uint64_t rows = 3; rows * rows <= nodes; ++rows) {
    if (nodes % rows == 0) best = {static_cast<Node>(rows), static_cast<Node>(nodes / rows)};
  }
  return best;
}

Result<Sides> torus_sides(const Request& request) {
  if (request.parameters.empty()) {
    if (const auto sides = most_square(request.nodes())) return *sides;
    if (request.nodes() == 1) return Sides{1, 1};
    return request.impossible(
        fmt::format("it is no product of two sides of at least 3; {}", kAnyNumber));
  }
  const auto sides = parse_sides(request.parameters);
  if (!sides) return request.wrong("does not give its sides; write torus:ROWSxCOLUMNS, torus:8x8");
  if (std::uint64_t{sides->rows} * sides->columns != request.nodes()) {
    return request.impossible(
        fmt::format("its sides give {} nodes", std::uint64_t{sides->rows} * sides->columns));
  }
  if (request.nodes() > 1 && (sides->rows < 3 || sides->columns < 3)) {
    return request.impossible("both sides must be at least 3; a torus of less is a ring or a grid");
  }
  return *sides;
}

}  // namespace

Result<Blueprint> ring(const Request& request) {
  const Node n = request.nodes();
  std::vector<Edge> edges;
  for (Node i = 0; i + 1 < n; ++i) edges.push_back({i, i + 1});
  if (n > 2) edges.push_back({n - 1, 0});
  return undirected(request, edges);
}

Result<Blueprint> directed_ring(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Shift next{1, 0.5};
  return Blueprint::fixed(std::move(name), request.nodes() == 1
                                               ? Step::idle(1)
                                               : circulant(request.nodes(), 0.5, {&next, 1}));
}

Result<Blueprint> path(const Request& request) {
  std::vector<Edge> edges;
  for (Node i = 0; i + 1 < request.nodes(); ++i) edges.push_back({i, i + 1});
  return undirected(request, edges);
}

Result<Blueprint> star(const Request& request) {
  std::vector<Edge> edges;
  for (Node i = 1; i < request.nodes(); ++i) edges.push_back({0, i});
  return undirected(request, edges);
}

Result<Blueprint> complete(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Node n = request.nodes();
  STARLING_TRY(request.check_messages(static_cast<double>(n) * (n - 1.0)));
  std::vector<Shift> shifts;
  for (Node offset = 1; offset < n; ++offset) shifts.push_back({offset, 1.0 / n});
  return Blueprint::fixed(std::move(name), circulant(n, 1.0 / n, shifts));
}

Result<Blueprint> torus(const Request& request) {
  STARLING_ASSIGN(const Sides sides, torus_sides(request));
  STARLING_TRY(request.check_messages(4.0 * request.nodes()));
  std::vector<Edge> edges;
  for (Node row = 0; row < sides.rows && sides.rows > 1; ++row) {
    for (Node column = 0; column < sides.columns; ++column) {
      const Node here = row * sides.columns + column;
      edges.push_back({here, row * sides.columns + (column + 1) % sides.columns});
      edges.push_back({here, (row + 1) % sides.rows * sides.columns + column});
    }
  }
  return Blueprint::fixed(fmt::format("torus:{}x{}", sides.rows, sides.columns),
                          metropolis(request.nodes(), edges));
}

Result<Blueprint> hypercube(const Request& request) {
  const Node n = request.nodes();
  if (!std::has_single_bit(n)) {
    return request.impossible(fmt::format("a hypercube has a power of two, as {} or {}; {}",
                                          std::bit_floor(n), std::uint64_t{std::bit_floor(n)} * 2,
                                          kAnyNumber));
  }
  STARLING_TRY(request.check_messages(static_cast<double>(n) * ceil_log(n, 2)));
  std::vector<Edge> edges;
  for (Node i = 0; i < n; ++i) {
    for (Node bit = 1; bit < n; bit <<= 1) {
      if (i < (i ^ bit)) edges.push_back({i, i ^ bit});
    }
  }
  return undirected(request, edges);
}

// Ying, Yuan, Chen, Hu, Pan, Yin, "Exponential Graph is Provably Efficient for Decentralized Deep
// Training", NeurIPS 2021.
Result<Blueprint> exponential(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Node n = request.nodes();
  const unsigned hops = ceil_log(n, 2);
  STARLING_TRY(request.check_messages(static_cast<double>(n) * hops));
  const double weight = 1.0 / (hops + 1);
  std::vector<Shift> shifts;
  for (unsigned hop = 0; hop < hops; ++hop) shifts.push_back({Node{1} << hop, weight});
  return Blueprint::fixed(std::move(name), circulant(n, weight, shifts));
}

}  // namespace starling::topologies

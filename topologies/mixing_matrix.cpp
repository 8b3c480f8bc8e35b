// SPDX-License-Identifier: Apache-2.0
#include "topologies/mixing_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace starling::topologies {
namespace {

constexpr double kSumError = 1e-12;

struct Rows {
  std::vector<std::uint64_t> begin;  // [nodes + 1]
  std::vector<Weight> weights;

  std::span<const Weight> row(Node node) const {
    return std::span(weights).subspan(begin[node], begin[node + 1] - begin[node]);
  }
};

Error not_stochastic(std::string message) { return rejected("not-stochastic", std::move(message)); }

Result<void> check_weight(Node receiver, Node sender, double weight) {
  // Not `weight < 0`, which would let NaN pass.
  if (weight >= 0 && std::isfinite(weight)) return {};
  return not_stochastic(
      fmt::format("the weight that node {} gives to node {} is {}; it must be finite and not "
                  "negative",
                  receiver, sender, weight));
}

Result<void> check_entries(const std::vector<double>& diagonal,
                           const std::vector<MixingEntry>& entries) {
  if (diagonal.empty()) return not_stochastic("a mixing matrix needs at least one node");
  for (Node i = 0; i < diagonal.size(); ++i) STARLING_TRY(check_weight(i, i, diagonal[i]));
  for (const MixingEntry& entry : entries) {
    STARLING_TRY(check_weight(entry.receiver, entry.sender, entry.weight));
    if (entry.receiver >= diagonal.size() || entry.sender >= diagonal.size()) {
      return not_stochastic(fmt::format("the entry ({}, {}) lies outside a matrix of {} nodes",
                                        entry.receiver, entry.sender, diagonal.size()));
    }
    if (entry.receiver == entry.sender) {
      return not_stochastic(fmt::format(
          "the entry ({0}, {0}) stands on the diagonal, among those off it", entry.receiver));
    }
  }
  return {};
}

// Entries by row, each row ascending by sender.
Rows by_receiver(Node nodes, const std::vector<MixingEntry>& entries) {
  Rows rows{std::vector<std::uint64_t>(std::size_t{nodes} + 1), {}};
  for (const MixingEntry& entry : entries) ++rows.begin[entry.receiver + 1];
  for (std::size_t i = 1; i <= nodes; ++i) rows.begin[i] += rows.begin[i - 1];
  rows.weights.resize(entries.size());
  std::vector<std::uint64_t> next(rows.begin.begin(), rows.begin.end() - 1);
  for (const MixingEntry& entry : entries) {
    rows.weights[next[entry.receiver]++] = {entry.sender, entry.weight};
  }
  for (Node i = 0; i < nodes; ++i) {
    const auto row =
        std::span(rows.weights).subspan(rows.begin[i], rows.begin[i + 1] - rows.begin[i]);
    if (!std::ranges::is_sorted(row, {}, &Weight::node)) std::ranges::sort(row, {}, &Weight::node);
  }
  return rows;
}

Rows transposed(Node nodes, const Rows& rows) {
  Rows result{std::vector<std::uint64_t>(std::size_t{nodes} + 1), {}};
  for (const Weight& weight : rows.weights) ++result.begin[weight.node + 1];
  for (std::size_t i = 1; i <= nodes; ++i) result.begin[i] += result.begin[i - 1];
  result.weights.resize(rows.weights.size());
  std::vector<std::uint64_t> next(result.begin.begin(), result.begin.end() - 1);
  for (Node i = 0; i < nodes; ++i) {
    for (const Weight& weight : rows.row(i)) {
      result.weights[next[weight.node]++] = {i, weight.weight};
    }
  }
  return result;
}

Result<void> check_distinct(Node nodes, const Rows& rows) {
  for (Node i = 0; i < nodes; ++i) {
    const auto row = rows.row(i);
    const auto twice = std::ranges::adjacent_find(row, {}, &Weight::node);
    if (twice != row.end()) {
      return not_stochastic(fmt::format("the entry ({}, {}) stands twice", i, twice->node));
    }
  }
  return {};
}

// A line that does not sum to 1.
struct BadLine {
  Node node = 0;
  double sum = 0;
};

std::optional<BadLine> first_bad_line(const std::vector<double>& diagonal, const Rows& rows) {
  for (Node i = 0; i < diagonal.size(); ++i) {
    double sum = diagonal[i];
    for (const Weight& weight : rows.row(i)) sum += weight.weight;
    if (!(std::abs(sum - 1) <= kSumError)) return BadLine{i, sum};
  }
  return std::nullopt;
}

}  // namespace

Result<MixingMatrix> MixingMatrix::make(std::vector<double> diagonal,
                                        std::vector<MixingEntry> entries) {
  STARLING_TRY(check_entries(diagonal, entries));
  const auto nodes = static_cast<Node>(diagonal.size());
  Rows rows = by_receiver(nodes, entries);
  STARLING_TRY(check_distinct(nodes, rows));
  Rows columns = transposed(nodes, rows);
  const auto bad_row = first_bad_line(diagonal, rows);
  const auto bad_column = first_bad_line(diagonal, columns);
  if (bad_row && bad_column) {
    return not_stochastic(
        fmt::format("neither rows nor columns sum to 1, so mixing would keep neither the mean nor "
                    "the sum: row {} sums to {:.12g} and column {} to {:.12g}",
                    bad_row->node, bad_row->sum, bad_column->node, bad_column->sum));
  }
  MixingMatrix matrix;
  matrix.row_stochastic_ = !bad_row;
  matrix.column_stochastic_ = !bad_column;
  matrix.symmetric_ = rows.begin == columns.begin && rows.weights == columns.weights;
  matrix.diagonal_ = std::move(diagonal);
  matrix.senders_begin_ = std::move(rows.begin);
  matrix.senders_ = std::move(rows.weights);
  if (!matrix.symmetric_) {
    matrix.receivers_begin_ = std::move(columns.begin);
    matrix.receivers_ = std::move(columns.weights);
  }
  return matrix;
}

std::span<const Weight> MixingMatrix::senders(Node node) const {
  return std::span(senders_).subspan(senders_begin_[node],
                                     senders_begin_[node + 1] - senders_begin_[node]);
}

std::span<const Weight> MixingMatrix::receivers(Node node) const {
  if (symmetric_) return senders(node);
  return std::span(receivers_)
      .subspan(receivers_begin_[node], receivers_begin_[node + 1] - receivers_begin_[node]);
}

}  // namespace starling::topologies

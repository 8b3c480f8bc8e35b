// SPDX-License-Identifier: Apache-2.0
// Links with values of their own, as measured or as an earlier run wrote them: a CSV file with the
// columns from and to, any of latency, bandwidth and loss, and time, from which on a row holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/sim/value_file.h"

namespace starling::sim {

// A way from one node to another, as a number.
constexpr std::uint64_t link_of(std::uint32_t from, std::uint32_t to) {
  return (std::uint64_t{from} << 32) | to;
}

class LinkValues {
 public:
  struct Values {
    std::optional<double> latency;    // seconds
    std::optional<double> bandwidth;  // bytes a second
    std::optional<double> loss;       // probability, of a piece
  };

  // No link has values of its own.
  LinkValues() = default;
  // A row holds for both directions, unless another row has the other direction; rows of one link
  // stand by their times, and a field that is empty is as in the row before. A row without `to` is
  // the access link of node `from`, which has a bandwidth only, at all times. Fails as ValueFile.
  [[nodiscard]] static Result<LinkValues> read(const std::filesystem::path& path,
                                               std::uint32_t nodes);

  bool empty() const { return links_.empty(); }
  bool has_access() const { return !access_.empty(); }
  // Of the way from one node to another at a time, seconds; empty() says that no link has any.
  Values link(std::uint32_t from, std::uint32_t to, double time) const;
  // When they change, after the start; ascending.
  std::vector<double> changes(std::uint32_t from, std::uint32_t to) const;
  // Whether any link's do.
  bool change() const { return !later_.empty(); }
  // Bandwidth of a node's access link.
  std::optional<double> access(std::uint32_t node) const;
  // The largest probability of a loss that the file names.
  double loss_max() const { return loss_max_; }
  // Whether a link, not only access links, has a bandwidth.
  bool has_bandwidths() const { return has_bandwidths_; }

 private:
  struct Later {
    double time = 0;
    Values values;
  };
  using Rows = std::unordered_map<std::uint64_t, std::vector<Later>>;

  [[nodiscard]] Result<void> add_row(const ValueFile& row, std::uint32_t nodes, Rows& rows);
  void take(const Rows& rows);

  std::unordered_map<std::uint64_t, Values> links_;  // both directions, at the start
  Rows later_;                                       // of those that change, by time
  std::unordered_map<std::uint32_t, double> access_;
  double loss_max_ = 0;
  bool has_bandwidths_ = false;
};

}  // namespace starling::sim

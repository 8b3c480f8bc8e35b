// SPDX-License-Identifier: Apache-2.0
// Who holds which rows: the schemes of federated-learning papers, as people know them from Flower
// Datasets. A partition is a function of (labels, spec, number of parts) alone; its seed is its
// own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/data/dataset.h"

namespace starling::data {

// n rows, C classes, N parts. "Cut" divides a shuffled list of m rows by proportions p_1 .. p_N at
// floor(m (p_1 + ... + p_k)); "even" gives the first m mod N parts one row more. Unlike Flower,
// every list is shuffled before it is cut, no row is lost to rounding, and Dirichlet is drawn up to
// 1000 times (Flower: 11).
enum class Scheme {
  kIid,        // all rows shuffled, cut evenly
  kShards,     // sorted by label into N k even shards, k drawn for each part (FedAvg paper; k = 2)
  kDirichlet,  // each class cut by its own draw of Dirichlet(alpha) over the parts (Yurochkin et
               // al., ICML 2019), all drawn again until each part has `min` rows; no balancing
  kPathological,  // each part draws k classes; each class cut evenly among the parts that drew it
                  // (Li et al., ICDE 2022). Rows of a class that no part drew stay unused.
  kQuantity,      // all rows shuffled, cut by one draw of Dirichlet(alpha), again until `min` rows
  kNatural,       // a part for each value of a CSV column, in sorted order
  kExponential,   // all rows shuffled; part i of N gets floor(n e^i / sum_j e^j), the last the rest
  kSquare,        // ... i^2
  kLinear,        // ... i
  kBalancedDirichlet,  // as decentralized-learning papers divide (Lin et al., ICML 2021): groups of
                       // at most C parts get rows in proportion; in a group each class in turn is
                       // cut by Dirichlet(alpha) over the parts that hold less than an even share,
                       // drawn again until each part holds half of one. Small alphas stay possible.
};

// How kPathological draws classes: at random; the first of part i (from 0) is i mod C, the others
// at random; or (i + 0, i + 1, ...) mod C.
enum class ClassAssignment { kRandom, kFirstDeterministic, kDeterministic };

// "SCHEME[:KEY=VALUE,...]"; keys that do not belong to the scheme are refused.
struct PartitionSpec {
  Scheme scheme = Scheme::kIid;
  double alpha = 0.5;           // dirichlet, quantity, balanced-dirichlet: (0, 1e6]
  std::uint32_t rows_min = 10;  // dirichlet, quantity: `min`, rows that each part has at least
  std::uint32_t shards_per_part = 2;                      // shards: `per-part`, 1 or more
  std::uint32_t classes_per_part = 2;                     // pathological: `classes`, 1 .. C
  ClassAssignment assignment = ClassAssignment::kRandom;  // pathological: `assign`
  std::string column;                                     // natural: `column`
  std::uint64_t seed = 1;
  std::uint32_t index = 0;  // 1 .. of; 0: the spec names no part
  std::uint32_t of = 0;

  // Fails with "partition-spec" and a sentence that names the known schemes or keys.
  [[nodiscard]] static Result<PartitionSpec> parse(std::string_view text);
  // With every key of the scheme, so that it means the same whatever later defaults are.
  std::string to_string() const;
  friend bool operator==(const PartitionSpec&, const PartitionSpec&) = default;
};

// Row numbers of each part, ascending. Every row is in exactly one part, save those that
// kPathological leaves unused. Fails (kRejected) with "partition-impossible": more parts than rows,
// `min` out of reach after 1000 draws, a part that would be empty, ...
[[nodiscard]] Result<std::vector<std::vector<std::uint32_t>>> partition(const RowLabels& labels,
                                                                        const PartitionSpec& spec,
                                                                        std::size_t parts);

// The same as views that share `dataset`.
[[nodiscard]] Result<std::vector<DatasetView>> partition_views(
    const std::shared_ptr<const Dataset>& dataset, const PartitionSpec& spec, std::size_t parts);

struct PartitionSummary {
  std::vector<std::vector<std::size_t>> histogram;  // [parts][classes]
  std::size_t rows_min = 0;
  std::size_t rows_max = 0;
  double rows_mean = 0;
  std::size_t rows_unused = 0;
};
PartitionSummary summarize(const RowLabels& labels,
                           const std::vector<std::vector<std::uint32_t>>& parts);
// A table, a line a part (the first `parts_shown`), and a line of totals.
std::string to_text(const PartitionSummary& summary, std::size_t parts_shown = 20);

}  // namespace starling::data

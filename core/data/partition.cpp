// SPDX-License-Identifier: Apache-2.0
#include "core/data/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/rng.h"

namespace starling::data {
namespace {

using Rows = std::vector<std::uint32_t>;
using Parts = std::vector<Rows>;

constexpr std::uint32_t kDrawsMax = 1000;

struct Request {
  const RowLabels& rows;
  const PartitionSpec& spec;
  std::size_t parts;

  std::size_t count() const { return rows.labels.size(); }
  Rng rng(std::uint32_t attempt = 0) const {
    return Rng({.seed = spec.seed,
                .purpose = Purpose::kPartition,
                .node = static_cast<std::uint64_t>(spec.scheme),
                .attempt = attempt});
  }
};

Error impossible(const Request& request, const std::string& why) {
  return wrong_setting("partition-impossible", "the partition " + request.spec.to_string() +
                                                   " of " + std::to_string(request.count()) +
                                                   " rows into " + std::to_string(request.parts) +
                                                   " parts " + why);
}

Rows all_rows(std::size_t count) {
  Rows rows(count);
  std::iota(rows.begin(), rows.end(), 0U);
  return rows;
}

// Where the k-th of `parts` even pieces of `count` rows begins; the first ones are one longer.
std::size_t even_begin(std::size_t count, std::size_t parts, std::size_t k) {
  return k * (count / parts) + std::min(k, count % parts);
}

void append(Rows& part, const Rows& from, std::size_t begin, std::size_t end) {
  part.insert(part.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
              from.begin() + static_cast<std::ptrdiff_t>(end));
}

// ends[k] = floor(count (p_1 + ... + p_k)), the last is `count`.
void cut(std::size_t count, std::span<const double> proportions, std::span<std::size_t> ends) {
  double sum = 0;
  for (std::size_t k = 0; k < proportions.size(); ++k) {
    sum += proportions[k];
    ends[k] = std::min(count, static_cast<std::size_t>(sum * static_cast<double>(count)));
  }
  ends.back() = count;
}

// Rows of each class in a shuffled order.
std::vector<Rows> rows_by_class(const Request& request, Rng& rng) {
  std::vector<Rows> classes(static_cast<std::size_t>(request.rows.classes));
  for (std::size_t i = 0; i < request.count(); ++i) {
    classes[static_cast<std::size_t>(request.rows.labels[i])].push_back(
        static_cast<std::uint32_t>(i));
  }
  for (Rows& rows : classes) rng.shuffle(std::span(rows));
  return classes;
}

// All rows shuffled; part k gets sizes[k] of them.
Parts deal(const Request& request, const std::vector<std::size_t>& sizes, Rng rng) {
  Rows rows = all_rows(request.count());
  rng.shuffle(std::span(rows));
  Parts parts(request.parts);
  std::size_t begin = 0;
  for (std::size_t k = 0; k < request.parts; ++k) {
    append(parts[k], rows, begin, begin + sizes[k]);
    begin += sizes[k];
  }
  return parts;
}

Result<Parts> partition_iid(const Request& request) {
  std::vector<std::size_t> sizes(request.parts);
  for (std::size_t k = 0; k < request.parts; ++k) {
    sizes[k] = even_begin(request.count(), request.parts, k + 1) -
               even_begin(request.count(), request.parts, k);
  }
  return deal(request, sizes, request.rng());
}

Result<Parts> partition_shards(const Request& request) {
  const std::size_t per_part = request.spec.shards_per_part;
  if (request.count() / request.parts < per_part) {
    return impossible(request, "would leave shards empty: take fewer parts or shards");
  }
  Rows sorted = all_rows(request.count());
  std::ranges::stable_sort(sorted, {}, [&](std::uint32_t row) { return request.rows.labels[row]; });
  const std::size_t shards = request.parts * per_part;
  Rows drawn = all_rows(shards);
  request.rng().shuffle(std::span(drawn));
  Parts parts(request.parts);
  for (std::size_t i = 0; i < shards; ++i) {
    append(parts[i / per_part], sorted, even_begin(request.count(), shards, drawn[i]),
           even_begin(request.count(), shards, drawn[i] + 1));
  }
  return parts;
}

// Draws until every part has rows_min rows: for each group of rows (its size given) the ends of the
// parts' pieces, [groups][parts].
Result<std::vector<std::vector<std::size_t>>> draw_cuts(const Request& request,
                                                        const std::vector<std::size_t>& groups) {
  const std::size_t rows_min = request.spec.rows_min;
  if (rows_min > request.count() / request.parts) {
    return impossible(request, "cannot give each part its minimum of " + std::to_string(rows_min) +
                                   " rows; take fewer parts or set min=");
  }
  std::vector<double> proportions(request.parts);
  std::vector<std::vector<std::size_t>> ends(groups.size(),
                                             std::vector<std::size_t>(request.parts));
  for (std::uint32_t attempt = 1; attempt <= kDrawsMax; ++attempt) {
    Rng rng = request.rng(attempt);
    std::vector<std::size_t> sizes(request.parts);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      rng.dirichlet(request.spec.alpha, proportions);
      cut(groups[g], proportions, ends[g]);
      for (std::size_t k = 0; k < request.parts; ++k) {
        sizes[k] += ends[g][k] - (k > 0 ? ends[g][k - 1] : 0);
      }
    }
    if (std::ranges::min(sizes) >= rows_min) return ends;
  }
  return impossible(request, "did not give each part " + std::to_string(rows_min) + " rows in " +
                                 std::to_string(kDrawsMax) +
                                 " draws; take a larger alpha, fewer parts or a smaller min");
}

Result<Parts> partition_dirichlet(const Request& request) {
  Rng rng = request.rng();
  const std::vector<Rows> classes = rows_by_class(request, rng);
  std::vector<std::size_t> sizes;
  for (const Rows& rows : classes) sizes.push_back(rows.size());
  STARLING_ASSIGN(const auto ends, draw_cuts(request, sizes));
  Parts parts(request.parts);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (std::size_t k = 0; k < request.parts; ++k) {
      append(parts[k], classes[c], k > 0 ? ends[c][k - 1] : 0, ends[c][k]);
    }
  }
  return parts;
}

Result<Parts> partition_quantity(const Request& request) {
  STARLING_ASSIGN(auto ends, draw_cuts(request, {request.count()}));
  std::vector<std::size_t>& sizes = ends.front();
  std::adjacent_difference(sizes.begin(), sizes.end(), sizes.begin());
  return deal(request, sizes, request.rng());
}

// The classes of part `k`, distinct.
std::vector<std::size_t> draw_classes(const Request& request, std::size_t k, Rng& rng) {
  const auto classes = static_cast<std::size_t>(request.rows.classes);
  std::vector<std::size_t> drawn(classes);
  std::iota(drawn.begin(), drawn.end(), std::size_t{0});
  switch (request.spec.assignment) {
    case ClassAssignment::kRandom:
      rng.shuffle(std::span(drawn));
      break;
    case ClassAssignment::kFirstDeterministic:
      std::swap(drawn[0], drawn[k % classes]);
      rng.shuffle(std::span(drawn).subspan(1));
      break;
    case ClassAssignment::kDeterministic:
      std::ranges::rotate(drawn, drawn.begin() + static_cast<std::ptrdiff_t>(k % classes));
      break;
  }
  drawn.resize(request.spec.classes_per_part);
  return drawn;
}

Result<Parts> partition_pathological(const Request& request) {
  if (request.spec.classes_per_part > static_cast<std::uint32_t>(request.rows.classes)) {
    return impossible(request, "asks for more classes than the " +
                                   std::to_string(request.rows.classes) + " there are");
  }
  Rng rng = request.rng();
  const std::vector<Rows> classes = rows_by_class(request, rng);
  std::vector<std::vector<std::size_t>> holders(classes.size());
  for (std::size_t k = 0; k < request.parts; ++k) {
    for (std::size_t c : draw_classes(request, k, rng)) holders[c].push_back(k);
  }
  Parts parts(request.parts);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const std::size_t pieces = holders[c].size();
    if (pieces > classes[c].size()) {
      return impossible(request, "needs " + std::to_string(pieces) + " rows of class " +
                                     std::to_string(c) + ", which has " +
                                     std::to_string(classes[c].size()) +
                                     "; take fewer parts or classes=");
    }
    for (std::size_t i = 0; i < pieces; ++i) {
      append(parts[holders[c][i]], classes[c], even_begin(classes[c].size(), pieces, i),
             even_begin(classes[c].size(), pieces, i + 1));
    }
  }
  return parts;
}

Result<Parts> partition_natural(const Request& request) {
  const std::size_t groups = request.rows.group_names.size();
  if (request.rows.groups.size() != request.count()) {
    return impossible(request, "needs the values of the column " + request.spec.column +
                                   "; only a csv data set has columns");
  }
  if (groups != request.parts) {
    return impossible(request, "needs a part for each value of " + request.spec.column +
                                   ", which has " + std::to_string(groups) + " values");
  }
  Parts parts(request.parts);
  for (std::size_t i = 0; i < request.count(); ++i) {
    parts[request.rows.groups[i]].push_back(static_cast<std::uint32_t>(i));
  }
  return parts;
}

// How much part i (from 1) weighs against the others.
double weight(const Request& request, double i) {
  if (request.spec.scheme == Scheme::kLinear) return i;
  if (request.spec.scheme == Scheme::kSquare) return i * i;
  return std::exp(i - static_cast<double>(request.parts));  // e^i, scaled against overflow
}

// Parts that hold their share get nothing more; the others what was drawn, in proportion, or the
// same where everything was drawn for full parts.
void close_full(const std::vector<std::size_t>& sizes, double share,
                std::vector<double>& proportions) {
  const auto is_open = [&](std::size_t k) { return static_cast<double>(sizes[k]) < share; };
  double open = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) open += is_open(k) ? proportions[k] : 0;
  double sum = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    proportions[k] = is_open(k) ? (open > 0 ? proportions[k] : 1) : 0;
    sum += proportions[k];
  }
  // All are full only where no row is left to give, such as for a class without any.
  for (double& proportion : proportions) proportion = sum > 0 ? proportion / sum : 0;
}

// One group of parts of kBalancedDirichlet: where each class's pieces end, [classes][parts], drawn
// until every part holds half of an even share.
Result<std::vector<std::vector<std::size_t>>> draw_balanced(const Request& request,
                                                            const std::vector<std::size_t>& classes,
                                                            std::size_t parts, Rng& rng) {
  std::size_t total = 0;
  for (const std::size_t size : classes) total += size;
  const double share = static_cast<double>(total) / static_cast<double>(parts);
  std::vector<double> proportions(parts);
  std::vector<std::vector<std::size_t>> ends(classes.size(), std::vector<std::size_t>(parts));
  for (std::uint32_t attempt = 0; attempt < kDrawsMax; ++attempt) {
    std::vector<std::size_t> sizes(parts);
    for (std::size_t c = 0; c < classes.size(); ++c) {
      rng.dirichlet(request.spec.alpha, proportions);
      close_full(sizes, share, proportions);
      cut(classes[c], proportions, ends[c]);
      for (std::size_t k = 0; k < parts; ++k) sizes[k] += ends[c][k] - (k > 0 ? ends[c][k - 1] : 0);
    }
    if (static_cast<double>(std::ranges::min(sizes)) >= share / 2) return ends;
  }
  return impossible(request, "did not give each part half of an even share in " +
                                 std::to_string(kDrawsMax) +
                                 " draws; take a larger alpha or fewer parts");
}

Result<Parts> partition_balanced_dirichlet(const Request& request) {
  Rng rng = request.rng();
  Rows rows = all_rows(request.count());
  rng.shuffle(std::span(rows));
  const auto class_count = static_cast<std::size_t>(request.rows.classes);
  const std::size_t groups = (request.parts + class_count - 1) / class_count;
  Parts parts(request.parts);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = even_begin(request.parts, groups, g);
    const std::size_t last = even_begin(request.parts, groups, g + 1);
    // Rows in proportion to the group's parts.
    const std::size_t begin = even_begin(request.count(), request.parts, first);
    const std::size_t end = even_begin(request.count(), request.parts, last);
    std::vector<Rows> classes(class_count);
    for (std::size_t i = begin; i < end; ++i) {
      classes[static_cast<std::size_t>(request.rows.labels[rows[i]])].push_back(rows[i]);
    }
    std::vector<std::size_t> sizes;
    for (const Rows& of_class : classes) sizes.push_back(of_class.size());
    STARLING_ASSIGN(const auto ends, draw_balanced(request, sizes, last - first, rng));
    for (std::size_t c = 0; c < class_count; ++c) {
      for (std::size_t k = 0; k < last - first; ++k) {
        append(parts[first + k], classes[c], k > 0 ? ends[c][k - 1] : 0, ends[c][k]);
      }
    }
  }
  return parts;
}

Result<Parts> partition_by_size(const Request& request) {
  double total = 0;
  for (std::size_t i = 1; i <= request.parts; ++i) total += weight(request, static_cast<double>(i));
  std::vector<std::size_t> sizes;
  std::size_t rest = request.count();
  for (std::size_t i = 1; i <= request.parts; ++i) {
    const double share = weight(request, static_cast<double>(i)) / total;
    sizes.push_back(
        std::min(rest, static_cast<std::size_t>(share * static_cast<double>(request.count()))));
    rest -= sizes.back();
    if (sizes.back() == 0) {
      return impossible(request, "would leave part " + std::to_string(i) +
                                     " without a row; take fewer parts or another scheme");
    }
  }
  sizes.back() += rest;
  return deal(request, sizes, request.rng());
}

Result<Parts> partition_by_scheme(const Request& request) {
  switch (request.spec.scheme) {
    case Scheme::kIid:
      return partition_iid(request);
    case Scheme::kShards:
      return partition_shards(request);
    case Scheme::kDirichlet:
      return partition_dirichlet(request);
    case Scheme::kBalancedDirichlet:
      return partition_balanced_dirichlet(request);
    case Scheme::kPathological:
      return partition_pathological(request);
    case Scheme::kQuantity:
      return partition_quantity(request);
    case Scheme::kNatural:
      return partition_natural(request);
    case Scheme::kExponential:
    case Scheme::kSquare:
    case Scheme::kLinear:
      return partition_by_size(request);
  }
  return impossible(request, "names no scheme");
}

}  // namespace

Result<Parts> partition(const RowLabels& labels, const PartitionSpec& spec, std::size_t parts) {
  const Request request{labels, spec, parts};
  if (parts == 0) return impossible(request, "makes no sense: there must be at least one");
  if (parts > request.count()) return impossible(request, "has too few rows: take fewer parts");
  if (request.count() > std::numeric_limits<std::uint32_t>::max()) {
    return impossible(request, "has more rows than 2^32 - 1");
  }
  STARLING_ASSIGN(Parts result, partition_by_scheme(request));
  for (Rows& rows : result) std::ranges::sort(rows);
  return result;
}

Result<std::vector<DatasetView>> partition_views(const std::shared_ptr<const Dataset>& dataset,
                                                 const PartitionSpec& spec, std::size_t parts) {
  STARLING_ASSIGN(Parts rows, partition(dataset->row_labels(), spec, parts));
  std::vector<DatasetView> views;
  for (Rows& part : rows) {
    views.push_back({dataset, std::make_shared<const Rows>(std::move(part))});
  }
  return views;
}

}  // namespace starling::data

// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/middle_mean.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/aggregate/scalar_sums.h"
#include "core/base/check.h"
#include "core/base/counted.h"

namespace starling::aggregate {
namespace {

constexpr std::size_t kTileFloats = 64 * 1024;  // of all updates together: the second cache
constexpr std::size_t kTileMin = 256;           // elements: shorter rows cost more than they save

// Integers in the order of the finite floats, which compilers compare in vectors where they do not
// do so with floats; its own inverse on the bits.
std::int32_t ordered(std::int32_t bits) {
  return bits ^ ((bits >> 31) & std::numeric_limits<std::int32_t>::max());
}

// Some elements of every update, [rows, elements].
class Tile {
 public:
  // `keys` is scratch of the size of `values`.
  Tile(std::span<const float> values, std::span<std::int32_t> keys, std::size_t rows)
      : keys_(keys), rows_(rows), elements_(values.size() / rows) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      keys[i] = ordered(std::bit_cast<std::int32_t>(values[i]));
    }
  }

  // Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): which
  // rows it compares does not depend on values, so a comparison is of whole rows.
  void sort_columns() {
    const std::size_t top = std::bit_ceil(rows_) / 2;
    for (std::size_t p = top; p > 0; p /= 2) {
      std::size_t q = top, r = 0, d = p;
      while (true) {
        for (std::size_t k = 0; k + d < rows_; ++k) {
          if ((k & p) == r) exchange(row(k), row(k + d));
        }
        if (q == p) break;
        d = q - p;
        q /= 2;
        r = p;
      }
    }
  }

  // Of every column without its first and last `drop`; added from the lowest to the highest.
  void mean_of_middle(std::size_t drop, double* out) const {
    std::fill_n(out, elements_, 0.0);
    for (std::size_t k = drop; k < rows_ - drop; ++k) {
      const std::int32_t* const keys = row(k);
      for (std::size_t j = 0; j < elements_; ++j) {
        out[j] += static_cast<double>(std::bit_cast<float>(ordered(keys[j])));
      }
    }
    const auto count = static_cast<double>(rows_ - 2 * drop);
    for (std::size_t j = 0; j < elements_; ++j) out[j] /= count;
  }

 private:
  std::int32_t* row(std::size_t k) const { return keys_.data() + k * elements_; }

  void exchange(std::int32_t* __restrict low, std::int32_t* __restrict high) const {
    const std::size_t size = elements_;
    for (std::size_t j = 0; j < size; ++j) {
      const std::int32_t a = low[j], b = high[j];
      low[j] = a < b ? a : b;  // with std::min compilers take one element at a time
      high[j] = a < b ? b : a;
    }
  }

  std::span<std::int32_t> keys_;
  std::size_t rows_;
  std::size_t elements_;
};

}  // namespace

Result<Report> MiddleMean::report(const update::Schema& schema,
                                  const update::UpdateSource& updates) const {
  ScalarSums scalars(schema.scalars);
  for (const update::ContributionHead* head : updates.heads()) scalars.add(*head);
  const std::size_t rows = scalars.contributions;
  if (rows < updates_min()) {
    return retry("too-few-updates",
                 fmt::format("{}, and the rule needs {}", counted(rows, "update"), updates_min()));
  }
  const std::size_t drop = dropped(rows);
  const std::size_t tile_elements = std::max(kTileMin, kTileFloats / rows);
  std::vector<float> room(rows * tile_elements);
  std::vector<std::int32_t> keys(room.size());
  Report report = scalars.report();
  for (std::size_t i = 0; i < schema.vectors.size(); ++i) {
    const auto elements = static_cast<std::size_t>(schema.vectors[i].elements);
    PageBlock means(elements * sizeof(double));
    auto* const out = reinterpret_cast<double*>(means.data());
    for (std::size_t first = 0; first < elements; first += tile_elements) {
      const std::size_t size = std::min(tile_elements, elements - first);
      const std::span<float> values = std::span(room).first(rows * size);
      STARLING_TRY(updates.read(i, first, size, values));
      Tile tile(values, std::span(keys).first(values.size()), rows);
      tile.sort_columns();
      tile.mean_of_middle(drop, out + first);
    }
    report.vectors.emplace_back(std::move(means), elements);
  }
  return report;
}

double MiddleMean::combine(std::vector<double> values) const {
  STARLING_CHECK(values.size() >= updates_min());
  std::ranges::sort(values);
  const std::size_t drop = dropped(values.size());
  const auto middle = std::span(values).subspan(drop, values.size() - 2 * drop);
  return std::accumulate(middle.begin(), middle.end(), 0.0) / static_cast<double>(middle.size());
}

}  // namespace starling::aggregate

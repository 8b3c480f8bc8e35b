// SPDX-License-Identifier: Apache-2.0
// Kernels::affine: both operands are contiguous along the sum, so the lanes of an accumulator hold
// every kLanes-th product and are added up at the end. Weights stay as they are stored.
#pragma once

#include <utility>

#include "core/linalg/kernel_table.h"
#include "core/linalg/kernels/vec.h"

namespace starling::linalg::STARLING_ISA {
namespace {

template <int kRows, int kColumns, bool kPart>
STARLING_INLINE void affine_step(const float* x, std::ptrdiff_t x_row, const float* w,
                                 std::ptrdiff_t w_row, std::size_t part,
                                 Vec (&sum)[kRows][kAffineColumns]) {
  Vec row[kRows];
  STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
    row[m] = load_either<kPart>(x + m * x_row, part);
  }
  STARLING_UNROLL for (int n = 0; n < kColumns; ++n) {
    const Vec column = in_register(load_either<kPart>(w + n * w_row, part));
    STARLING_UNROLL for (int m = 0; m < kRows; ++m) sum[m][n] = fma(row[m], column, sum[m][n]);
  }
}

// A tile's part of the sum, from `begin` to `end`; what lies between two parts is in `partial`.
struct AffineArgs {
  const float* x;
  const float* w;
  const float* bias;
  float* y;
  std::size_t begin, end;
  Vec* partial;  // [kAffineRows * kAffineColumns]
};

// kWhole: from 0 to the depth, without partial sums.
template <int kRows, int kColumns, bool kWhole>
void affine_tile(const Affine& p, const AffineArgs& t) {
  Vec sum[kRows][kAffineColumns] = {};
  if (!kWhole && t.begin > 0) {
    STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
      STARLING_UNROLL for (int n = 0; n < kColumns; ++n) {
        sum[m][n] = t.partial[m * kAffineColumns + n];
      }
    }
  }
  std::size_t k = t.begin;
  for (; k + kLanes <= t.end; k += kLanes) {
    affine_step<kRows, kColumns, false>(t.x + k, p.x_row, t.w + k, p.w_row, 0, sum);
  }
  if (!kWhole && t.end < p.depth) {
    STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
      STARLING_UNROLL for (int n = 0; n < kColumns; ++n) {
        t.partial[m * kAffineColumns + n] = sum[m][n];
      }
    }
    return;
  }
  if (k < t.end) {
    affine_step<kRows, kColumns, true>(t.x + k, p.x_row, t.w + k, p.w_row, t.end - k, sum);
  }
  const bool relu = p.relu;
  const Vec start = load_part(t.bias, kColumns);
  STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
    Vec v = lane_sums(sum[m]) + start;
    if (relu) v = select(v > zero(), v, zero());
    store_part(t.y + m * p.y_row, v, kColumns);
  }
}

using AffineTile = void (*)(const Affine&, const AffineArgs&);
struct AffineRow {
  AffineTile columns[kAffineColumns];
};
struct AffineTiles {
  AffineRow rows[kAffineRows];
};

template <int kRows, bool kWhole, int... kColumn>
constexpr AffineRow make_affine_row(std::integer_sequence<int, kColumn...>) {
  return {{affine_tile<kRows, kColumn + 1, kWhole>...}};
}
template <bool kWhole, int... kRow>
constexpr AffineTiles make_affine_tiles(std::integer_sequence<int, kRow...>) {
  return {
      {make_affine_row<kRow + 1, kWhole>(std::make_integer_sequence<int, kAffineColumns>())...}};
}
inline constexpr AffineTiles kWholeTiles =
    make_affine_tiles<true>(std::make_integer_sequence<int, kAffineRows>());
inline constexpr AffineTiles kPartialTiles =
    make_affine_tiles<false>(std::make_integer_sequence<int, kAffineRows>());

// Depths above kDepthBlock are cut, so that a tile's weights stay in the first cache while the rows
// of x pass; that needs room for the partial sums of a strip of rows.
inline constexpr std::size_t kDepthBlock = 1024;
inline constexpr std::size_t kStripTiles = 16;

STARLING_INLINE void affine_strip(const Affine& p, const Split& rows, std::size_t first_tile,
                                  std::size_t first_row, std::size_t column, std::size_t columns) {
  Vec partial[kStripTiles][kAffineRows * kAffineColumns];
  const std::size_t left = rows.parts - first_tile;
  const std::size_t tiles = left < kStripTiles ? left : kStripTiles;
  const auto n = static_cast<std::ptrdiff_t>(column);
  const AffineTiles& table = p.depth <= kDepthBlock ? kWholeTiles : kPartialTiles;
  for (std::size_t begin = 0; begin < p.depth; begin += kDepthBlock) {
    const std::size_t end = p.depth - begin < kDepthBlock ? p.depth : begin + kDepthBlock;
    for (std::size_t j = 0, row = first_row; j < tiles; row += rows[first_tile + j], ++j) {
      const auto m = static_cast<std::ptrdiff_t>(row);
      const AffineArgs args = {
          p.x + m * p.x_row, p.w + n * p.w_row, p.bias + n, p.y + m * p.y_row + n, begin, end,
          partial[j]};
      table.rows[rows[first_tile + j] - 1].columns[columns - 1](p, args);
    }
  }
}

inline void affine(const Affine& p) {
  const Split rows(p.rows, kAffineRows);
  const Split columns(p.columns, kAffineColumns);
  std::size_t row = 0;
  for (std::size_t tile = 0; tile < rows.parts; tile += kStripTiles) {
    for (std::size_t i = 0, column = 0; i < columns.parts; column += columns[i], ++i) {
      affine_strip(p, rows, tile, row, column, columns[i]);
    }
    for (std::size_t j = tile; j < tile + kStripTiles && j < rows.parts; ++j) row += rows[j];
  }
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA

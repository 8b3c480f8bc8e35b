// SPDX-License-Identifier: Apache-2.0
// Kernels::multiply: tiles of kProductRows x 2 vectors of C stay in registers over the whole sum,
// B is read in place (its rows are contiguous), A is broadcast from where it lies. No packing.
#pragma once

#include <utility>

#include "core/linalg/kernel_table.h"
#include "core/linalg/kernels/vec.h"

namespace starling::linalg::STARLING_ISA {
namespace {

struct TileArgs {
  const float* a;
  const float* b;
  float* c;
  const float* bias;
  const float* mask;
  std::size_t part;  // lanes of the last vector
};

// The n-th of the vectors at `p`; only the last may be in part.
template <int kVecs, bool kPart>
STARLING_INLINE Vec load_nth(const float* p, int n, std::size_t part) {
  return n + 1 == kVecs ? load_either<kPart>(p + n * kLanes, part) : load(p + n * kLanes);
}

template <int kRows, int kVecs, bool kPart>
STARLING_INLINE void finish_tile(std::ptrdiff_t c_row, float keep, const TileArgs t,
                                 Vec (&sum)[kRows][kVecs]) {
  if (keep != 0) {
    STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
      STARLING_UNROLL for (int n = 0; n < kVecs; ++n) {
        const Vec old = load_nth<kVecs, kPart>(t.c + m * c_row, n, t.part);
        sum[m][n] = fma(broadcast(keep), old, sum[m][n]);
      }
    }
  }
  if (t.mask != nullptr) {
    STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
      STARLING_UNROLL for (int n = 0; n < kVecs; ++n) {
        const Vec mask = load_nth<kVecs, kPart>(t.mask + m * c_row, n, t.part);
        sum[m][n] = select(mask > zero(), sum[m][n], zero());
      }
    }
  }
  STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
    float* c = t.c + m * c_row;
    STARLING_UNROLL for (int n = 0; n + 1 < kVecs; ++n) store(c + n * kLanes, sum[m][n]);
    store_either<kPart>(c + (kVecs - 1) * kLanes, sum[m][kVecs - 1], t.part);
  }
}

// kAdjacent: the rows of A lie side by side (a_row is 1), which saves their addresses.
template <int kRows, int kVecs, bool kPart, bool kAdjacent>
void product_tile(const Product& p, const TileArgs& t) {
  const std::ptrdiff_t a_row = kAdjacent ? 1 : p.a_row;
  Vec sum[kRows][kVecs];
  STARLING_UNROLL for (int n = 0; n < kVecs; ++n) {
    Vec start = zero();
    if (t.bias != nullptr) start = load_nth<kVecs, kPart>(t.bias, n, t.part);
    STARLING_UNROLL for (int m = 0; m < kRows; ++m) sum[m][n] = start;
  }
  for (std::size_t o = 0; o < p.outer; ++o) {
    const float* a = t.a + static_cast<std::ptrdiff_t>(o) * p.a_outer;
    const float* b = t.b + static_cast<std::ptrdiff_t>(o) * p.b_outer;
    for (std::size_t i = p.inner; i > 0; --i) {
      Vec column[kVecs];
      STARLING_UNROLL for (int n = 0; n < kVecs; ++n) {
        column[n] = load_nth<kVecs, kPart>(b, n, t.part);
      }
      STARLING_UNROLL for (int m = 0; m < kRows; ++m) {
        const Vec row = broadcast(a[m * a_row]);
        STARLING_UNROLL for (int n = 0; n < kVecs; ++n) {
          sum[m][n] = fma(row, column[n], sum[m][n]);
        }
      }
      a += p.a_inner;
      b += p.b_inner;
    }
  }
  finish_tile<kRows, kVecs, kPart>(p.c_row, p.keep, t, sum);
}

using ProductTile = void (*)(const Product&, const TileArgs&);
struct ProductTiles {
  ProductTile two[kProductRows];       // by rows - 1
  ProductTile two_part[kProductRows];  // the second vector in part
  ProductTile one_part[kProductRows];
};

template <bool kAdjacent, int... kRow>
constexpr ProductTiles make_product_tiles(std::integer_sequence<int, kRow...>) {
  return {{product_tile<kRow + 1, 2, false, kAdjacent>...},
          {product_tile<kRow + 1, 2, true, kAdjacent>...},
          {product_tile<kRow + 1, 1, true, kAdjacent>...}};
}
inline constexpr ProductTiles kProductTiles =
    make_product_tiles<false>(std::make_integer_sequence<int, kProductRows>());
inline constexpr ProductTiles kAdjacentTiles =
    make_product_tiles<true>(std::make_integer_sequence<int, kProductRows>());

struct Columns {
  const ProductTile* tiles;
  std::size_t first, part;
};

STARLING_INLINE Columns columns_at(const Product& p, std::size_t first) {
  const ProductTiles& tiles = p.a_row == 1 ? kAdjacentTiles : kProductTiles;
  const std::size_t left = p.columns - first;
  if (left >= 2 * kLanes) return {tiles.two, first, kLanes};
  if (left > kLanes) return {tiles.two_part, first, left - kLanes};
  return {tiles.one_part, first, left};
}

STARLING_INLINE void run_tile(const Product& p, const Columns& columns, std::size_t group,
                              std::size_t row, std::size_t rows) {
  const auto g = static_cast<std::ptrdiff_t>(group);
  const auto m = static_cast<std::ptrdiff_t>(row);
  const auto n = static_cast<std::ptrdiff_t>(columns.first);
  const std::ptrdiff_t at = g * p.c_group + m * p.c_row + n;
  const TileArgs args = {p.a + g * p.a_group + m * p.a_row,
                         p.b + n,
                         p.c + at,
                         p.bias == nullptr ? nullptr : p.bias + n,
                         p.mask == nullptr ? nullptr : p.mask + at,
                         columns.part};
  columns.tiles[rows - 1](p, args);
}

// The larger of B and C is walked along its rows.
inline void multiply(const Product& p) {
  const Split rows(p.rows, kProductRows);
  const bool by_rows = p.outer * p.inner < p.rows;
  const std::size_t columns_outer = by_rows ? p.columns : 2 * kLanes;
  for (std::size_t outer = 0; outer < p.columns; outer += columns_outer) {
    for (std::size_t group = 0; group < p.groups; ++group) {
      for (std::size_t tile = 0, row = 0; tile < rows.parts; row += rows[tile], ++tile) {
        const std::size_t end = by_rows ? p.columns : outer + 1;
        for (std::size_t column = outer; column < end; column += 2 * kLanes) {
          run_tile(p, columns_at(p, column), group, row, rows[tile]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA

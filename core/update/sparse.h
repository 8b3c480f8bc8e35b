// SPDX-License-Identifier: Apache-2.0
// The sparse form of float32 values: a bitmap with a bit for each element, that of element i bit
// i % 64 of the little-endian word i / 64, then the elements whose bit is set, in order. An element
// has its bit where its own bits are not all zero: -0.0 is stored too, and what is read is the
// same bits. Bits beyond the last element are zero, so that a vector has only one sparse form. The
// bitmap is whole words, so that the elements behind it are aligned.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/bytes.h"

namespace starling::update {

inline constexpr std::size_t kBitmapWordBits = 64;

inline std::uint64_t bitmap_bytes(std::uint64_t elements) {
  return (elements / kBitmapWordBits + (elements % kBitmapWordBits != 0 ? 1 : 0)) * 8;
}
inline std::uint64_t sparse_bytes(std::uint64_t elements, std::uint64_t stored) {
  return bitmap_bytes(elements) + stored * sizeof(float);
}

// How many elements the sparse form stores.
std::uint64_t count_stored(std::span<const float> values);

// The values' sparse form takes their place, from the beginning of their memory on. Needs memory
// for a bitmap beside it. Requires: stored == count_stored(values); their sparse form is no longer
// than they are.
void make_sparse(std::span<float> values, std::uint64_t stored);

// How many bits of [begin, end) are set. Requires: the range lies within the bitmap.
std::uint64_t count_bits(ByteView bitmap, std::size_t begin, std::size_t end);

// The other way for the elements of [begin, begin + out.size()): those of them that are stored are
// the last count_bits() of `out` beforehand. Requires: the range lies within the bitmap.
void expand(ByteView bitmap, std::size_t begin, std::span<float> out);

}  // namespace starling::update

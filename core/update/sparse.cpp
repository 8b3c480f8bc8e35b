// SPDX-License-Identifier: Apache-2.0
#include "core/update/sparse.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/base/check.h"

namespace starling::update {
namespace {

bool is_stored(float value) { return std::bit_cast<std::uint32_t>(value) != 0; }

// Bits [begin, begin + count) of the bitmap, the first one lowest. Requires: count <= 64.
std::uint64_t bits_at(ByteView bitmap, std::size_t begin, std::size_t count) {
  const std::byte* const word = bitmap.data() + begin / kBitmapWordBits * 8;
  const std::size_t skipped = begin % kBitmapWordBits;
  std::uint64_t bits = load_little<std::uint64_t>(word) >> skipped;
  if (skipped + count > kBitmapWordBits) {
    bits |= load_little<std::uint64_t>(word + 8) << (kBitmapWordBits - skipped);
  }
  if (count < kBitmapWordBits) bits &= (std::uint64_t{1} << count) - 1;
  return bits;
}

}  // namespace

std::uint64_t count_stored(std::span<const float> values) {
  // Of so many compilers count in the width of an element.
  constexpr std::size_t kCountedAtOnce = 1 << 20;
  std::uint64_t count = 0;
  for (std::size_t first = 0; first < values.size(); first += kCountedAtOnce) {
    std::uint32_t in_block = 0;
    for (const float value :
         values.subspan(first, std::min(kCountedAtOnce, values.size() - first))) {
      in_block += is_stored(value) ? 1 : 0;
    }
    count += in_block;
  }
  return count;
}

// From the last element to the first: what is stored moves to the end, and then behind the bitmap.
void make_sparse(std::span<float> values, std::uint64_t stored) {
  const std::size_t head = bitmap_bytes(values.size());
  STARLING_CHECK(sparse_bytes(values.size(), stored) <= values.size_bytes());
  std::vector<std::uint64_t> bitmap(head / 8);
  float* to = values.data() + values.size();
  for (std::size_t word = bitmap.size(); word-- > 0;) {
    const std::size_t first = word * kBitmapWordBits;
    std::uint64_t bits = 0;
    for (std::size_t i = std::min(first + kBitmapWordBits, values.size()); i-- > first;) {
      const float value = values[i];
      const bool keep = is_stored(value);
      bits = bits << 1 | (keep ? 1 : 0);
      to[-1] = value;  // over an element that was looked at already; stays only where it is kept
      to -= keep ? 1 : 0;
    }
    bitmap[word] = bits;
  }
  auto* const begin = reinterpret_cast<std::byte*>(values.data());
  std::memmove(begin + head, to, static_cast<std::size_t>(stored) * sizeof(float));
  std::ranges::copy(std::as_bytes(std::span(bitmap)), begin);
}

std::uint64_t count_bits(ByteView bitmap, std::size_t begin, std::size_t end) {
  std::uint64_t count = 0;
  for (std::size_t at = begin; at < end; at += kBitmapWordBits) {
    const std::uint64_t bits = bits_at(bitmap, at, std::min(kBitmapWordBits, end - at));
    count += static_cast<std::uint64_t>(std::popcount(bits));
  }
  return count;
}

// What is stored is never overtaken: it is the end of `out`.
void expand(ByteView bitmap, std::size_t begin, std::span<float> out) {
  const float* stored = out.data() + out.size() - count_bits(bitmap, begin, begin + out.size());
  for (std::size_t at = 0; at < out.size(); at += kBitmapWordBits) {
    const std::size_t size = std::min(kBitmapWordBits, out.size() - at);
    float* const to = out.data() + at;
    std::uint64_t bits = bits_at(bitmap, begin + at, size);
    const auto count = static_cast<std::size_t>(std::popcount(bits));
    if (count == size) {
      std::memmove(to, stored, size * sizeof(float));
    } else {
      std::array<float, kBitmapWordBits> next;
      std::copy_n(stored, count, next.begin());
      std::fill_n(to, size, 0.0F);
      for (std::size_t i = 0; bits != 0; ++i, bits &= bits - 1) {
        to[std::countr_zero(bits)] = next[i];
      }
    }
    stored += count;
  }
}

}  // namespace starling::update

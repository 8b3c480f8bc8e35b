// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/compressor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/base/check.h"

namespace starling::gossip {
namespace {

std::size_t kept_elements(double ratio, std::size_t size) {
  const double k = std::ceil(ratio * static_cast<double>(size));
  return std::clamp<std::size_t>(static_cast<std::size_t>(k), 1, size);
}

double qsgd_levels(int bits) { return std::ldexp(1.0, bits - 1) - 1; }

double qsgd_variance(double levels) {
  const double b = static_cast<double>(Compressor::kBlock);
  return std::min(b / (levels * levels), std::sqrt(b) / levels);
}

// Codes of 1 to 16 bits, packed from the lowest bit of the first byte on.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}
  void put(std::uint32_t code, unsigned bits) {
    pending_ |= code << held_;
    for (held_ += bits; held_ >= 8; held_ -= 8, pending_ >>= 8) *out_++ = std::byte(pending_);
  }
  void finish() {
    if (held_ > 0) *out_ = std::byte(pending_);
  }

 private:
  std::byte* out_;
  std::uint32_t pending_ = 0;
  unsigned held_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::byte* in) : in_(in) {}
  std::uint32_t get(unsigned bits) {
    for (; held_ < bits; held_ += 8) pending_ |= std::to_integer<std::uint32_t>(*in_++) << held_;
    const std::uint32_t code = pending_ & ((1U << bits) - 1);
    pending_ >>= bits;
    held_ -= bits;
    return code;
  }

 private:
  const std::byte* in_;
  std::uint32_t pending_ = 0;
  unsigned held_ = 0;
};

// What is not a number counts as the largest, so that it is sent and seen.
double modulus(double v) {
  return std::isnan(v) ? std::numeric_limits<double>::infinity() : std::abs(v);
}

}  // namespace

Compressor::Compressor(const AlgorithmOptions& options, std::size_t size) : size_(size) {
  STARLING_CHECK(size > 0 && options.compressor != "none");
  if (options.compressor == "top-k") {
    kind_ = Kind::kTopK;
    kept_ = kept_elements(options.ratio, size);
    order_.resize(size);
  } else if (options.compressor == "sign") {
    kind_ = Kind::kSign;
  } else {
    kind_ = Kind::kQsgd;
    bits_ = static_cast<unsigned>(options.bits);
    levels_ = qsgd_levels(options.bits);
    divisor_ = levels_ * (1 + qsgd_variance(levels_));
  }
}

std::size_t Compressor::block_bytes(std::size_t elements) const {
  return sizeof(float) + (elements * bits_ + 7) / 8;
}

std::size_t Compressor::packed_bytes() const {
  if (kind_ == Kind::kTopK) return kept_ * (sizeof(std::uint32_t) + sizeof(float));
  const std::size_t rest = size_ % kBlock;
  return size_ / kBlock * block_bytes(kBlock) + (rest == 0 ? 0 : block_bytes(rest));
}

void Compressor::encode(std::span<const double> difference, Rng& rng,
                        std::vector<std::byte>& packed) {
  STARLING_CHECK(difference.size() == size_);
  packed.resize(packed_bytes());
  if (kind_ == Kind::kTopK) return encode_top_k(difference, packed.data());
  std::byte* out = packed.data();
  for (std::size_t begin = 0; begin < size_; begin += kBlock) {
    const auto block = difference.subspan(begin, std::min(kBlock, size_ - begin));
    encode_block(block, rng, out);
    out += block_bytes(block.size());
  }
}

void Compressor::encode_top_k(std::span<const double> difference, std::byte* out) {
  std::iota(order_.begin(), order_.end(), 0U);
  const auto end = order_.begin() + static_cast<std::ptrdiff_t>(kept_);
  std::nth_element(order_.begin(), end - 1, order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const double x = modulus(difference[a]), y = modulus(difference[b]);
    return x != y ? x > y : a < b;
  });
  std::sort(order_.begin(), end);
  for (auto at = order_.begin(); at != end; ++at) {
    const auto value = static_cast<float>(difference[*at]);
    std::memcpy(out, &*at, sizeof *at);
    std::memcpy(out + sizeof *at, &value, sizeof value);
    out += sizeof *at + sizeof value;
  }
}

void Compressor::encode_block(std::span<const double> block, Rng& rng, std::byte* out) const {
  double sum = 0;
  for (const double v : block) sum += kind_ == Kind::kSign ? std::abs(v) : v * v;
  const double norm = kind_ == Kind::kSign ? 0 : std::sqrt(sum);
  const auto scale = static_cast<float>(
      kind_ == Kind::kSign ? sum / static_cast<double>(block.size()) : norm / divisor_);
  std::memcpy(out, &scale, sizeof scale);
  const bool graded = norm > 0 && std::isfinite(norm);
  BitWriter codes(out + sizeof scale);
  for (std::size_t i = 0; i < block.size(); ++i) {
    std::uint32_t code = std::signbit(block[i]) ? 1 : 0;
    if (graded) {
      const double level = std::abs(block[i]) / norm * levels_ + rng.uniform();
      code |= static_cast<std::uint32_t>(std::min(level, levels_)) << 1;
    }
    codes.put(code, bits_);
  }
  codes.finish();
}

void Compressor::add(std::span<const std::byte> packed, double weight,
                     std::span<double> sum) const {
  STARLING_CHECK(sum.size() == size_ && packed.size() == packed_bytes());
  const std::byte* in = packed.data();
  if (kind_ == Kind::kTopK) {
    for (std::size_t k = 0; k < kept_; ++k, in += sizeof(std::uint32_t) + sizeof(float)) {
      std::uint32_t index = 0;
      float value = 0;
      std::memcpy(&index, in, sizeof index);
      std::memcpy(&value, in + sizeof index, sizeof value);
      STARLING_CHECK(index < size_);
      sum[index] += weight * static_cast<double>(value);
    }
    return;
  }
  for (std::size_t begin = 0; begin < size_; begin += kBlock) {
    const auto block = sum.subspan(begin, std::min(kBlock, size_ - begin));
    add_block(in, weight, block);
    in += block_bytes(block.size());
  }
}

void Compressor::add_block(const std::byte* in, double weight, std::span<double> sum) const {
  float scale = 0;
  std::memcpy(&scale, in, sizeof scale);
  const double unit = weight * static_cast<double>(scale);
  BitReader codes(in + sizeof scale);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::uint32_t code = codes.get(bits_);
    const double level = kind_ == Kind::kSign ? 1 : code >> 1;
    sum[i] += (code & 1U) != 0 ? -unit * level : unit * level;
  }
}

double default_consensus_step(const AlgorithmOptions& options, std::size_t size) {
  if (options.consensus_step > 0) return options.consensus_step;
  if (options.compressor == "none") return 1;
  if (options.compressor == "sign") return 0.45;
  const double omega =
      options.compressor == "top-k"
          ? static_cast<double>(kept_elements(options.ratio, size)) / static_cast<double>(size)
          : 1 / (1 + qsgd_variance(qsgd_levels(options.bits)));
  return std::pow(omega, 0.75);
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/compressor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

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

// Ordered as the moduli are; what is not a number counts as the largest, so that it is sent and
// seen.
std::uint64_t modulus_key(double v) {
  constexpr std::uint64_t kInfinity = 0x7FF0000000000000;
  return std::min(std::bit_cast<std::uint64_t>(v) & 0x7FFFFFFFFFFFFFFF, kInfinity);
}

// The elements of largest modulus: all above `key`, and the first `ties` of those that equal it.
struct Cut {
  std::uint64_t key = 0;
  std::size_t ties = 0;
};

// Counts keys by their exponent and highest digit, then looks only at those that share them with
// the k-th largest.
Cut largest_keys(std::span<const std::uint64_t> keys, std::size_t k) {
  constexpr unsigned kShift = 51;
  std::array<std::uint32_t, 4096> counts = {};
  for (const std::uint64_t key : keys) ++counts[key >> kShift];
  std::size_t bucket = counts.size() - 1;
  std::size_t above = 0;
  for (; above + counts[bucket] < k; --bucket) above += counts[bucket];
  thread_local std::vector<std::uint64_t> close;
  close.clear();
  for (const std::uint64_t key : keys) {
    if (key >> kShift == bucket) close.push_back(key);
  }
  const auto at = close.begin() + static_cast<std::ptrdiff_t>(k - above - 1);
  std::nth_element(close.begin(), at, close.end(), std::greater<>());
  const auto larger = std::count_if(close.begin(), at, [&](auto key) { return key > *at; });
  return {*at, k - above - static_cast<std::size_t>(larger)};
}

// In eight sums, which do not wait for each other.
template <class F>
double block_sum(std::span<const double> block, F&& f) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= block.size(); i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += f(block[i + lane]);
  }
  for (; i < block.size(); ++i) sums[i % 8] += f(block[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

Compressor::Compressor(const AlgorithmOptions& options, std::size_t size) : size_(size) {
  STARLING_CHECK(size > 0 && options.compressor != "none");
  if (options.compressor == "top-k") {
    kind_ = Kind::kTopK;
    kept_ = kept_elements(options.ratio, size);
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
                        std::vector<std::byte>& packed) const {
  STARLING_CHECK(difference.size() == size_);
  packed.resize(packed_bytes());
  if (kind_ == Kind::kTopK) return encode_top_k(difference, packed.data());
  std::byte* out = packed.data();
  for (std::size_t begin = 0; begin < size_; begin += kBlock) {
    const auto block = difference.subspan(begin, std::min(kBlock, size_ - begin));
    if (kind_ == Kind::kSign) {
      encode_signs(block, out);
    } else {
      encode_levels(block, rng, out);
    }
    out += block_bytes(block.size());
  }
}

void Compressor::encode_top_k(std::span<const double> difference, std::byte* out) const {
  thread_local std::vector<std::uint64_t> keys;
  keys.resize(difference.size());
  std::ranges::transform(difference, keys.begin(), modulus_key);
  Cut cut = largest_keys(keys, kept_);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (keys[i] < cut.key || (keys[i] == cut.key && cut.ties == 0)) continue;
    if (keys[i] == cut.key) --cut.ties;
    const auto value = static_cast<float>(difference[i]);
    std::memcpy(out, &i, sizeof i);
    std::memcpy(out + sizeof i, &value, sizeof value);
    out += sizeof i + sizeof value;
  }
}

// Eight signs a byte, the lowest bit first.
void Compressor::encode_signs(std::span<const double> block, std::byte* out) const {
  const double sum = block_sum(block, [](double v) { return std::abs(v); });
  const auto scale = static_cast<float>(sum / static_cast<double>(block.size()));
  std::memcpy(out, &scale, sizeof scale);
  out += sizeof scale;
  for (std::size_t begin = 0; begin < block.size(); begin += 8) {
    const std::size_t count = std::min<std::size_t>(8, block.size() - begin);
    unsigned signs = 0;
    for (std::size_t i = 0; i < count; ++i) {
      signs |= static_cast<unsigned>(std::bit_cast<std::uint64_t>(block[begin + i]) >> 63) << i;
    }
    *out++ = static_cast<std::byte>(signs);
  }
}

void Compressor::encode_levels(std::span<const double> block, Rng& rng, std::byte* out) const {
  const double norm = std::sqrt(block_sum(block, [](double v) { return v * v; }));
  const auto scale = static_cast<float>(norm / divisor_);
  std::memcpy(out, &scale, sizeof scale);
  const bool graded = norm > 0 && std::isfinite(norm);
  const double levels_a_unit = graded ? levels_ / norm : 0;
  BitWriter codes(out + sizeof scale);
  for (const double v : block) {
    std::uint32_t code = std::signbit(v) ? 1 : 0;
    if (graded) {
      const double level = std::abs(v) * levels_a_unit + rng.uniform();
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

bool Compressor::can_add(std::span<const std::byte> packed) const {
  if (packed.size() != packed_bytes()) return false;
  const std::byte* in = packed.data();
  const auto is_number = [](const std::byte* from) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return std::isfinite(value);
  };
  if (kind_ == Kind::kTopK) {
    for (std::size_t k = 0; k < kept_; ++k, in += sizeof(std::uint32_t) + sizeof(float)) {
      std::uint32_t index = 0;
      std::memcpy(&index, in, sizeof index);
      if (index >= size_ || !is_number(in + sizeof index)) return false;
    }
    return true;
  }
  for (std::size_t begin = 0; begin < size_; begin += kBlock) {
    if (!is_number(in)) return false;
    in += block_bytes(std::min(kBlock, size_ - begin));
  }
  return true;
}

void Compressor::add_block(const std::byte* in, double weight, std::span<double> sum) const {
  float scale = 0;
  std::memcpy(&scale, in, sizeof scale);
  in += sizeof scale;
  const double unit = weight * static_cast<double>(scale);
  if (kind_ == Kind::kSign) {
    const double signed_unit[2] = {unit, -unit};
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += signed_unit[std::to_integer<unsigned>(in[i / 8]) >> i % 8 & 1U];
    }
    return;
  }
  BitReader codes(in);
  for (double& total : sum) {
    const std::uint32_t code = codes.get(bits_);
    const double level = code >> 1;
    total += (code & 1U) != 0 ? -unit * level : unit * level;
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

// SPDX-License-Identifier: Apache-2.0
#include "core/base/rng.h"

#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace starling {
namespace {

// SplitMix64's finaliser (Steele, Lea, Flood 2014): spreads structured keys over all bits.
constexpr std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

// The 64-bit key hashes the whole StreamKey; the counter's upper half holds a second, independent
// hash, so that two streams coincide only if 128 bits collide. The lower half counts blocks.
Rng::Rng(const StreamKey& key) {
  std::uint64_t a = mix(key.seed);
  a = mix(a ^ static_cast<std::uint64_t>(key.purpose));
  a = mix(a ^ key.node);
  a = mix(a ^ (std::uint64_t{key.round} << 32 | key.attempt));
  const std::uint64_t b = mix(a ^ mix(key.seed + 1) ^ mix(key.node + 2));
  key_ = {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32)};
  counter_ = {0, 0, static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)};
}

void Rng::refill() {
  block_ = philox4x32_10(counter_, key_);
  used_ = 0;
  if (++counter_[0] == 0) ++counter_[1];
}

std::uint32_t Rng::next_u32() {
  if (used_ == 4) refill();
  return block_[used_++];
}

std::uint64_t Rng::next_u64() {
  const std::uint64_t low = next_u32();
  return low | (std::uint64_t{next_u32()} << 32);
}

double Rng::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

std::uint64_t Rng::below(std::uint64_t bound) {
  STARLING_CHECK(bound > 0);
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next_u64()) * bound;
  auto low = static_cast<std::uint64_t>(product);
  if (low < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      product = static_cast<Wide>(next_u64()) * bound;
      low = static_cast<std::uint64_t>(product);
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double Rng::normal() {
  if (has_spare_normal_) {
    has_spare_normal_ = false;
    return spare_normal_;
  }
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  const double angle = 2 * std::numbers::pi * uniform();
  spare_normal_ = radius * std::sin(angle);
  has_spare_normal_ = true;
  return radius * std::cos(angle);
}

double Rng::gamma(double shape) {
  STARLING_CHECK(shape > 0);
  if (shape < 1) {  // Gamma(a) = Gamma(a + 1) * U^(1/a)
    const double boosted = gamma(shape + 1);
    return boosted * std::pow(1 - uniform(), 1 / shape);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t;
    const double u = 1 - uniform();
    if (std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) return d * v;
  }
}

void Rng::dirichlet(double alpha, std::span<double> proportions) {
  double sum = 0;
  for (double& p : proportions) sum += p = gamma(alpha);
  if (sum > 0) {
    for (double& p : proportions) p /= sum;
  } else if (!proportions.empty()) {  // every draw underflowed (alpha near 0): one takes all
    proportions[static_cast<std::size_t>(below(proportions.size()))] = 1;
  }
}

}  // namespace starling

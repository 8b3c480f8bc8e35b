// SPDX-License-Identifier: Apache-2.0
// Counter-based random streams: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11), keyed by what
// the numbers are for. Two streams with different keys are independent; none depends on threads or
// order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace starling {

// What a stream is for. Values are part of every recorded result: append only.
enum class Purpose : std::uint32_t {
  kInitialization = 1,
  kSelection = 2,
  kBatches = 3,
  kPartition = 4,
  kSynthetic = 5,
  kBackoff = 6,
  kNetwork = 7,
  kNodes = 8,
  kTask = 9,
  kTopology = 10,
  kAlgorithm = 11,
  kTest = 12,
  kHoldOut = 13,
};

// FNV-1a, 64 bit: a node's name as part of a stream's key.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

struct StreamKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::kTest;
  std::uint64_t node = 0;  // hash_name(name), or 0 for streams of no node
  std::uint32_t round = 0;
  std::uint32_t attempt = 0;
};

// A value: copying it copies the position. Satisfies std::uniform_random_bit_generator.
class Rng {
 public:
  using result_type = std::uint32_t;

  explicit Rng(const StreamKey& key);

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xFFFFFFFFU; }
  result_type operator()() { return next_u32(); }

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  // [0, 1), 53 bits.
  double uniform();
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform in [0, bound), without bias (Lemire 2019). Requires: bound > 0.
  std::uint64_t below(std::uint64_t bound);
  // Standard normal (Box-Muller, both values used in turn).
  double normal();
  // Gamma(shape, 1) (Marsaglia and Tsang 2000). Requires: shape > 0.
  double gamma(double shape);
  // Fills `proportions` with a draw of the symmetric Dirichlet(alpha); sums to 1.
  void dirichlet(double alpha, std::span<double> proportions);

  // Where it stands, for an Archive.
  template <class A>
  void archive(A& state) {
    state.elements(std::span(key_));
    state.elements(std::span(counter_));
    state.elements(std::span(block_));
    state(used_);
    state(spare_normal_);
    state(has_spare_normal_);
    state.expect(used_ <= block_.size());
  }

  // Fisher-Yates.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<std::size_t>(below(i))]);
    }
  }

 private:
  void refill();

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
  double spare_normal_ = 0;
  bool has_spare_normal_ = false;
};

// One block of Philox4x32-10, for tests against the published vectors.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

}  // namespace starling

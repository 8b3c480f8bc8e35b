// SPDX-License-Identifier: Apache-2.0
// What CHOCO-SGD sends differences as, encoded as they travel; blocks of b = 512 elements.
//   top-k  the k = ceil(ratio d) elements of largest modulus, exactly: 8 k bytes
//   sign   the mean |v| of a block times signs (Karimireddy et al., ICML 2019): d/8 + 4 d/b bytes
//   qsgd   ||v|| of a block times random levels (Alistarh et al., NeurIPS 2017): bits d/8 + 4 d/b
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/rng.h"
#include "gossip/algorithms/algorithm_options.h"

namespace starling::gossip {

// qsgd: s = 2^(bits-1) - 1 levels, and a division by 1 + min(b/s^2, sqrt(b)/s), which makes a
// contraction of what is unbiased without it.
class Compressor {
 public:
  static constexpr std::size_t kBlock = 512;

  // Requires: options.compressor is one of kCompressors, but not "none"; size > 0.
  Compressor(const AlgorithmOptions& options, std::size_t size);

  // Replaces `packed`. Requires: difference: [d].
  void encode(std::span<const double> difference, Rng& rng, std::vector<std::byte>& packed) const;
  // What encode() always makes.
  std::size_t packed_bytes() const;
  // Whether it is of that size, every number in it finite and every index below d: what came from
  // elsewhere is asked about first.
  bool can_add(std::span<const std::byte> packed) const;
  // sum += weight * decoded, both [d]. Requires: can_add(packed).
  void add(std::span<const std::byte> packed, double weight, std::span<double> sum) const;

 private:
  enum class Kind : std::uint8_t { kTopK, kSign, kQsgd };
  void encode_top_k(std::span<const double> difference, std::byte* out) const;
  // One block: a float32 scale, then bits_ for each element, packed from the lowest bit.
  void encode_signs(std::span<const double> block, std::byte* out) const;
  void encode_levels(std::span<const double> block, Rng& rng, std::byte* out) const;
  void add_block(const std::byte* in, double weight, std::span<double> sum) const;
  std::size_t block_bytes(std::size_t elements) const;

  Kind kind_;
  std::size_t size_;
  std::size_t kept_ = 0;  // k
  unsigned bits_ = 1;     // an element, sign included
  double levels_ = 1;     // s
  double divisor_ = 1;    // of the norm: s (1 + min(b/s^2, sqrt(b)/s))
};

// gamma where the options leave it open: 1 without compression, else omega^(3/4) with the omega of
// E||Q(v) - v||^2 <= (1 - omega) ||v||^2. The proofs' gamma is hundreds of times smaller; those
// that Koloskova et al. tuned lie here (0.04 at top 1 %, 0.34 at 4 bits, 0.45 for signs).
double default_consensus_step(const AlgorithmOptions& options, std::size_t size);

}  // namespace starling::gossip

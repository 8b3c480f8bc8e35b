// SPDX-License-Identifier: Apache-2.0
// CHOCO-SGD (Koloskova, Stich, Jaggi, ICML 2019; with Lin, ICLR 2020): compressed differences q_j
// are added to copies xhat_j that neighbours keep; u of H local steps, order "adapt-then-combine":
//   q_i = Q(x_i + u_i - xhat_i),  xhat_j += q_j,
//   x_i <- x_i + u_i + gamma sum_j W_ij (xhat_j - xhat_i)
// xhat = 0 at first; no q may be lost: a node that lacks one mixes no more until it begins with new
// copies. Bytes a message: as the compressor says.
#pragma once

#include <optional>
#include <vector>

#include "gossip/algorithms/compressor.h"
#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

template <class T>
// In order "combine-while-adapt" (ICLR) the sum is taken before this step's q: x_i <- x_i + u_i +
// gamma sum, q_i = Q(x_i - xhat_i). Memory form: one e_i for the sum instead of all xhat_j.
class Choco final : public Algorithm<T> {
 public:
  // Random compressors draw from (seed, algorithm, node, exchange).
  Choco(const AlgorithmOptions& options, std::uint64_t seed, Node node, std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links&, std::span<const Received<T>>) override {}
  std::span<const T> model() const override { return x_; }
  // Keeps xhat and e: the neighbours go on from them. Only the model outlives a process: then all
  // begin with new copies together.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    state.elements(std::span(copy_));
    state.elements(std::span(pull_));
    return true;
  }

  // All begin with new copies.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;

  bool can_read(Node, std::span<const std::byte> packed) const override {
    return !compressor_ || compressor_->can_add(packed);
  }

  std::optional<Unpacked<T>> unpack(Node from, const Message<T>& message) const override;

  double consensus_step() const { return gamma_; }
  std::span<const double> public_copy() const { return copy_; }  // xhat_i
  std::span<const double> pull() const { return pull_; }  // e_i = sum_j W_ij (xhat_j - xhat_i)

 private:
  bool knows_copies(std::span<const Received<T>> inbox);
  void compress(std::uint64_t exchange);
  std::vector<T> decoded(const Message<T>& message) const;
  void add_decoded(const Message<T>& message, double weight, std::span<double> sum) const;
  void combine();

  double gamma_;
  bool adapt_first_;
  std::uint64_t seed_;
  Node node_;
  Vector<T> x_;
  // Sums of all q ever sent and received, so in double: in float they would walk away from each
  // other.
  Vector<double> copy_;
  Vector<double> pull_;
  std::optional<std::vector<bool>> heard_;  // whose q came in the first exchange; none: before it
  bool lacks_ = false;                      // a q since then: pull_ is 0, or it would go on pulling
  std::optional<Compressor> compressor_;    // none: q travels as it is
  Vector<T> plain_;                         // q of compressor "none"
  std::vector<std::byte> packed_;
  Message<T> message_;
};

}  // namespace starling::gossip

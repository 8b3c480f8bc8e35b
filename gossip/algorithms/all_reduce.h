// SPDX-License-Identifier: Apache-2.0
// The baseline with everybody in step: x_i <- (1/n) sum_j (x_j + u_j), u of H local steps. H = 1 is
// parallel SGD, H > 1 local SGD (Stich, ICLR 2019). The driver forms the mean; every node takes it
// as it is, so all hold the same bits. Bytes a message: 4 d.
#pragma once

#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

template <class T>
class AllReduce final : public Algorithm<T> {
 public:
  explicit AllReduce(std::span<const T> model) : x_(model.begin(), model.end()), next_(x_.size()) {}

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  // Without a mean (its one message did not come) the node goes on alone.
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return x_; }
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    return true;
  }

 private:
  Vector<T> x_;
  Vector<T> next_;
  Message<T> message_;
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// Epidemic learning (de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma, NeurIPS 2023):
//   x_i <- (x_i + u_i + sum over what came of (x_j + u_j)) / (number that came + 1)
// Every node averages what happens to reach it, whatever the matrix says; the mean is kept only in
// expectation, or where everybody receives alike. Bytes a message: 4 d.
#pragma once

#include "gossip/algorithms/mixer.h"
#include "gossip/algorithms/robust_mixing.h"

namespace starling::gossip {

template <class T>
class Epidemic final : public Algorithm<T> {
 public:
  Epidemic(const RobustOptions& robust, std::span<const T> model)
      : x_(model.begin(), model.end()), next_(model.size()), robust_(robust) {}

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  std::span<const Bounded> bounded() const override { return robust_.report(); }
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
  RobustMixing<T> robust_;
};

}  // namespace starling::gossip

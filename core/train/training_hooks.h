// SPDX-License-Identifier: Apache-2.0
// What local training takes and gives beside the model: a correction of its gradients, and what its
// optimizer remembers. Templates over the scalar, because strategies are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/linalg/aligned.h"

namespace starling::train {

// What an optimizer remembers between steps. Empty vectors and 0 steps: new.
template <class T>
struct OptimizerState {
  linalg::AlignedVector<T> first;   // [d]: velocity, or the first moment
  linalg::AlignedVector<T> second;  // [d]: the second moment, of optimizers that have one
  std::uint64_t steps = 0;
};

// Changes the mean gradient [d] of a step at y [d], without the optimizer's weight decay, before it
// is clipped and before the optimizer sees it.
template <class T>
using Correction = std::function<void(std::span<const T> y, std::span<T> gradient)>;

template <class T>
struct TrainingHooks {
  Correction<T> correct;  // called once a step; may be empty
  // Continued and brought up to date where not null; else the optimizer begins anew.
  OptimizerState<T>* optimizer = nullptr;
};

}  // namespace starling::train

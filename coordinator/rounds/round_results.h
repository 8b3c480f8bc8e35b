// SPDX-License-Identifier: Apache-2.0
// What the executor computes of rounds, so that a simulation that is repeated can take it from its
// journal instead of computing it again.
#pragma once

#include <functional>

#include "coordinator/rounds/round_aggregate.h"
#include "core/store/records.h"

namespace starling::coordinator {

// Called in the order of the executor's work, on its thread. Each returns what `compute` returns,
// or returned when this was asked for the first time.
class RoundResults {
 public:
  template <class T>
  using Compute = std::function<Result<T>()>;

  virtual ~RoundResults() = default;
  [[nodiscard]] virtual Result<double> add(const Compute<double>& compute) = 0;
  [[nodiscard]] virtual Result<RoundOutcome> finish(const Compute<RoundOutcome>& compute) = 0;
  [[nodiscard]] virtual Result<store::ModelRecord> write(
      const Compute<store::ModelRecord>& compute) = 0;
};

}  // namespace starling::coordinator

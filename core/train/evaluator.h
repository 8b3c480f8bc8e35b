// SPDX-License-Identifier: Apache-2.0
// Loss and accuracy over a data set. Fixed blocks of rows, summed in a fixed order: the same bits
// for every number of threads.
#pragma once

#include <atomic>
#include <span>

#include "core/base/compute_pool.h"
#include "core/data/dataset.h"
#include "core/model/model.h"

namespace starling::train {

struct Evaluation {
  double loss = 0;      // mean cross-entropy; may be infinite or NaN where the model diverged
  double accuracy = 0;  // [0, 1]
  std::uint64_t samples = 0;
};

// With `pool`, on its threads, this one waiting (so never from a job of the same pool). Fails with
// "no-data", "data-mismatch" or "stopped" (looked at between blocks of rows).
[[nodiscard]] Result<Evaluation> evaluate(const model::Model& model,
                                          std::span<const float> parameters,
                                          const data::DatasetView& view,
                                          ComputePool* pool = nullptr,
                                          const std::atomic<bool>* stop = nullptr);

}  // namespace starling::train

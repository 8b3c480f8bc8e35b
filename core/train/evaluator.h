// SPDX-License-Identifier: Apache-2.0
// Loss and accuracy over a data set. Fixed blocks of rows, summed in a fixed order: the same bits
// for every number of threads.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/compute_pool.h"
#include "core/data/dataset.h"
#include "core/model/model.h"

namespace starling::train {

// A custom trainer's numbers beside loss and accuracy, by name: "mae".
using Metrics = std::map<std::string, double>;

inline constexpr std::size_t kMetricsMax = 32;
inline constexpr std::size_t kMetricNameBytesMax = 64;
// Of an evaluation: of a-z, A-Z, 0-9 and ._-/@%, and neither "loss" nor "accuracy".
bool is_metric_name(std::string_view name);
// Of a training: the same, or "accuracy", which has no other place in a training's answer.
bool is_train_metric_name(std::string_view name);

struct Evaluation {
  double loss = 0;  // of built-in models mean cross-entropy; not finite where the model diverged
  std::optional<double> accuracy = {};  // [0, 1]; not every model has one
  std::uint64_t samples = 0;
  Metrics metrics = {};  // finite
};

// With `pool`, on its threads, this one waiting (so never from a job of the same pool). Fails with
// "no-data", "data-mismatch" or "stopped" (looked at between blocks of rows).
[[nodiscard]] Result<Evaluation> evaluate(const model::Model& model,
                                          std::span<const float> parameters,
                                          const data::DatasetView& view,
                                          ComputePool* pool = nullptr,
                                          const std::atomic<bool>* stop = nullptr);

}  // namespace starling::train

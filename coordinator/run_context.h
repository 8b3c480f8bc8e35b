// SPDX-License-Identifier: Apache-2.0
// What a run computes with: its model, its strategy's server half, its evaluation data. Made from
// the job alone; immutable while rounds go on.
#pragma once

#include <memory>
#include <optional>

#include "coordinator/job.h"
#include "core/base/compute_pool.h"
#include "core/data/dataset.h"
#include "core/model/model.h"
#include "core/strategy/strategy.h"
#include "core/train/evaluator.h"

namespace starling::coordinator {

struct RunContext {
  Job job;  // with the shape of the data filled in
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<strategy::ServerStrategy> strategy;
  std::optional<data::DatasetView> evaluation;

  bool evaluates(Round round) const;
  // What every round plan of the run says.
  Settings settings() const { return job.training.to_settings(); }
  update::Schema schema() const;
};

// Loads the evaluation data set, if the job names one, and makes the model for its shape; without
// one the job itself ("model shape" keys) or `known_shape` says it. "no-data-shape" where nothing
// does.
[[nodiscard]] Result<RunContext> prepare_run(
    const Job& job, const std::shared_ptr<const data::Dataset>& known_shape);

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// What a run computes with: its model, its strategy's server half, its evaluation data. Made from
// the job alone; immutable while rounds go on.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "coordinator/job/job.h"
#include "coordinator/machine/coordinator_events.h"
#include "core/base/compute_pool.h"
#include "core/data/dataset.h"
#include "core/model/external_model.h"
#include "core/model/model.h"
#include "core/strategy/catalogue.h"
#include "core/train/evaluator.h"

namespace starling::coordinator {

// An external model's values, from wherever they are. Called on a compute thread, perhaps again.
using ExternalModel = std::function<Result<model::Parameters>()>;

struct RunContext {
  Job job;  // with the shape of the data, or the layout of an external model, filled in
  std::shared_ptr<const model::Layout> layout;
  std::shared_ptr<const model::Model> model;  // null: an external one
  ExternalModel external;                     // where there is no model
  std::shared_ptr<const strategy::ServerStrategy<float>> strategy;
  std::optional<data::DatasetView> evaluation;
  client::TrainingSettings for_clients;  // the job's, of the strategy only what clients need

  bool evaluates(Round round) const;
  // All of the job's as settings_to_json has them, which a run begins with.
  std::string job_settings() const;
  // What every task of the run says.
  Settings settings() const { return for_clients.to_settings(); }
  // What a client must be able to do beyond what the first version could.
  std::vector<std::string> abilities() const;
  bool uniform_weights() const;
  update::Schema schema() const;
  // "layout-mismatch" where an external model is not any more what it was.
  [[nodiscard]] Result<RunPosition> initial_position(RunId run, std::uint64_t seed) const;
};

// Where `options` leave the bound on norms to the strategy: writes it there. A model with buffers
// has none: a counter's step says nothing of the model, and is as long as the client has rows.
void resolve_norm_max(AggregationOptions& options, const strategy::ServerStrategy<float>& strategy,
                      bool has_buffers = false);

// What `model.initial` names.
ExternalModel model_of_file(const Job& job);

// Loads the evaluation data set, if the job names one, and makes the model for its shape; without
// one the job itself ("model shape" keys) or `known_shape` says it. "no-data-shape" where nothing
// does. Where data.scale has no numbers in the job, they are computed from the evaluation data set,
// else from `known_shape`; "no-scale" where there is neither. An external model needs no shape:
// `external`, or else what the job names, is read for its layout.
[[nodiscard]] Result<RunContext> prepare_run(
    const Job& job, const std::shared_ptr<const data::Dataset>& known_shape,
    const strategy::Catalogue& strategies = strategy::builtin_strategies(),
    ExternalModel external = nullptr);

}  // namespace starling::coordinator

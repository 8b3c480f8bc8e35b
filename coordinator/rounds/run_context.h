// SPDX-License-Identifier: Apache-2.0
// What a run computes with: its model, its strategy's server half, its evaluation data. Made from
// the job alone; immutable while rounds go on.
#pragma once

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

// The model that an external run goes on from. Where it is not at hand it is read from
// model.initial, whose bytes must have `initial_sha256` if that is known.
struct ExternalOrigin {
  model::Snapshot model;
  std::optional<Sha256Digest> initial_sha256;
};

struct RunContext {
  Job job;  // with the shape of the data, or the layout of an external model, filled in
  std::shared_ptr<const model::Layout> layout;
  std::shared_ptr<const model::Model> model;   // null: an external one
  model::Snapshot external;                    // its values, until the run is loaded
  std::optional<Sha256Digest> initial_sha256;  // of the file of model.initial, where it was read
  std::shared_ptr<const strategy::ServerStrategy<float>> strategy;
  std::optional<data::DatasetView> evaluation;
  client::TrainingSettings for_clients;  // the job's, of the strategy only what clients need

  bool evaluates(Round round) const;
  // Whether the coordinator's trainer evaluates this round's model.
  bool evaluates_by_trainer(Round round) const { return model == nullptr && evaluates(round); }
  // All of the job's as settings_to_json has them, which a run begins with.
  std::string job_settings() const;
  // What every task of the run says.
  Settings settings() const { return for_clients.to_settings(); }
  // What a client must be able to do beyond what the first version could.
  std::vector<std::string> abilities() const;
  bool uniform_weights() const;
  update::Schema schema() const;
  RunPosition initial_position(RunId run, std::uint64_t seed) const;
};

// Where `options` leave the bound on norms to the strategy: writes it there. A model with buffers
// has none: a counter's step says nothing of the model, and is as long as the client has rows.
void resolve_norm_max(AggregationOptions& options, const strategy::ServerStrategy<float>& strategy,
                      bool has_buffers = false);

// Loads the evaluation data set, if the job names one, and makes the model for its shape; without
// one the job itself ("model shape" keys) or `known_shape` says it. "no-data-shape" where nothing
// does. Where data.scale has no numbers in the job, they are computed from the evaluation data set,
// else from `known_shape`; "no-scale" where there is neither. An external model needs no shape;
// "initial-differs" where its file is not the one that `origin` means.
[[nodiscard]] Result<RunContext> prepare_run(
    const Job& job, const std::shared_ptr<const data::Dataset>& known_shape,
    const strategy::Catalogue& strategies = strategy::builtin_strategies(),
    const ExternalOrigin& origin = {});

}  // namespace starling::coordinator

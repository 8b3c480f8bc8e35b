// SPDX-License-Identifier: Apache-2.0
// From a run's record to what its rounds compute with: the job, the evaluation data, the model.
// Takes seconds for large data, so it runs on a compute thread.
#pragma once

#include <memory>

#include "coordinator/run_context.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {

struct LoadedRun {
  std::shared_ptr<const RunContext> context;
  update::ModelVersion version;
  model::Snapshot model;
};

// What load_new_run would refuse of a run of this job; reads the data as it does.
[[nodiscard]] Result<void> try_job(const Job& job);

// With the initial model. The errors of parse_job, prepare_run and of bounds that cannot be summed.
[[nodiscard]] Result<LoadedRun> load_new_run(const store::Run& run);

// From the file of `last`, which must have its SHA-256.
[[nodiscard]] Result<LoadedRun> load_running_run(const store::Run& run,
                                                 const store::Checkpoints& checkpoints,
                                                 const store::ModelRecord& last);

// What store::recover_run asks.
[[nodiscard]] Result<Sha256Digest> hash_model_file(const std::filesystem::path& file);

}  // namespace starling::coordinator

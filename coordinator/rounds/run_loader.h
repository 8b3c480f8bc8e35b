// SPDX-License-Identifier: Apache-2.0
// From a run's record to what its rounds compute with: the job, the evaluation data, the model.
// Takes seconds for large data, so it runs on a compute thread.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/machine/data_shape.h"
#include "coordinator/rounds/run_context.h"
#include "core/store/checkpoints.h"
#include "core/store/spool.h"

namespace starling::coordinator {

struct LoadedRun {
  std::shared_ptr<const RunContext> context;
  RunPosition at;
  std::optional<Sha256Digest> made_sha256 = {};  // of the file of the model that a trainer has made
};

// Where the models of a run are kept.
using CheckpointsOf = std::function<store::Checkpoints(RunId)>;

// How a run's context is made of its job: prepare_context, unless the data are known already, as in
// a simulation. Called on a compute thread.
using PrepareContext =
    std::function<Result<RunContext>(const Job& job, const ExternalOrigin& origin)>;

// An error in a job, or in the data that it names, is the error of its author: kUsage.
Error as_wrong_job(const Error& error);

// Reads the evaluation data that the job names.
[[nodiscard]] Result<RunContext> prepare_context(const Job& job, const ExternalOrigin& origin);

// Bounds that no sum can hold are refused now, not when clients have trained.
[[nodiscard]] Result<void> check_bounds(const Job& job);

// "spool-too-small" where the run's rule needs all updates of a round at once and an empty spool
// does not hold so many.
[[nodiscard]] Result<void> check_spool(const RunContext& context,
                                       const store::UploadSpool::Options& spool);

struct TriedJob {
  Job job;                                     // with the shape of its data
  std::optional<Sha256Digest> initial_sha256;  // of the file that it begins with, if any
};

// Whether the job names no file of the external model that its run begins with.
bool lacks_initial_model(const Job& job);

// What load_new_run would refuse of a run of this job, and what check_new_job refuses; reads
// the data as load_new_run does. Where the shape of the data is still to be learned, or
// `trainer_initializes` and the initial model is still to be made, refuses what does not depend on
// it.
[[nodiscard]] Result<TriedJob> try_job(const Job& job, const PrepareContext& prepare,
                                       const std::optional<LearnedShape>& learned,
                                       bool trainer_initializes = false);

// With the initial model, `made` where a trainer has made it, for data of the `learned` shape where
// the job needs to be told. The errors of parse_job, of `prepare` and of bounds that cannot be
// summed.
[[nodiscard]] Result<LoadedRun> load_new_run(
    const store::Run& run, const strategy::Catalogue& strategies = strategy::builtin_strategies(),
    const PrepareContext& prepare = prepare_context,
    const std::optional<LearnedShape>& learned = std::nullopt,
    const model::Snapshot& made = nullptr);

// From the files of `last`, which must have their SHA-256, for the shape that the run began with.
[[nodiscard]] Result<LoadedRun> load_running_run(const store::Run& run,
                                                 const strategy::Catalogue& strategies,
                                                 const PrepareContext& prepare,
                                                 const store::Checkpoints& checkpoints,
                                                 const store::ModelRecord& last);

// As the files of its round, durably: the state's, if there is one, and then the model's, with the
// run's settings (settings_to_json) in its metadata.
[[nodiscard]] Result<store::ModelRecord> write_position(const store::Checkpoints& checkpoints,
                                                        const RunPosition& position,
                                                        const std::string& settings);

// What store::recover_run asks.
[[nodiscard]] Result<Sha256Digest> hash_model_file(Disk& disk, const std::filesystem::path& file);

}  // namespace starling::coordinator

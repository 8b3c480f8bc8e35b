// SPDX-License-Identifier: Apache-2.0
#include "coordinator/run_loader.h"

#include <fmt/format.h>

#include "coordinator/round_aggregate.h"
#include "core/model/safetensors.h"

namespace starling::coordinator {
namespace {

Result<std::shared_ptr<const RunContext>> load_context(const store::Run& run) {
  STARLING_ASSIGN(const Job job, parse_job(run.job, fmt::format("job of run {}", run.id.value())));
  STARLING_ASSIGN(RunContext context, prepare_run(job, nullptr));
  return std::make_shared<const RunContext>(std::move(context));
}

Result<model::Snapshot> make_initial_model(const RunContext& context, std::uint64_t seed) {
  auto model =
      std::make_shared<const model::Parameters>(model::initial_parameters(*context.model, seed));
  // Bounds that no sum can hold are refused now, not when clients have trained.
  STARLING_TRY(RoundAggregate::begin(context, context.schema(), model));
  return model;
}

}  // namespace

Result<void> try_job(const Job& job) {
  STARLING_ASSIGN(const RunContext context, prepare_run(job, nullptr));
  STARLING_TRY(make_initial_model(context, job.job.seed));
  return {};
}

Result<LoadedRun> load_new_run(const store::Run& run) {
  STARLING_ASSIGN(const auto context, load_context(run));
  STARLING_ASSIGN(const auto model, make_initial_model(*context, run.seed));
  return LoadedRun{context, {run.id, 0, model->sha256()}, model};
}

Result<LoadedRun> load_running_run(const store::Run& run, const store::Checkpoints& checkpoints,
                                   const store::ModelRecord& last) {
  STARLING_ASSIGN(const auto context, load_context(run));
  STARLING_ASSIGN(model::Parameters parameters,
                  model::read_safetensors(checkpoints.path(last.round),
                                          {.expected = context->model->layout()}));
  const auto model = std::make_shared<const model::Parameters>(std::move(parameters));
  return LoadedRun{context, {run.id, last.round, last.sha256}, model};
}

Result<Sha256Digest> hash_model_file(const std::filesystem::path& file) {
  STARLING_ASSIGN(const model::Parameters parameters, model::read_safetensors(file));
  return parameters.sha256();
}

}  // namespace starling::coordinator

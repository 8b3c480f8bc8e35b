// SPDX-License-Identifier: Apache-2.0
#include "coordinator/run_loader.h"

#include <fmt/format.h>

#include <array>

#include "coordinator/round_aggregate.h"
#include "core/model/safetensors.h"

namespace starling::coordinator {
namespace {

Result<std::shared_ptr<const RunContext>> load_context(const store::Run& run,
                                                       const PrepareContext& prepare) {
  STARLING_ASSIGN(const Job job, parse_job(run.job, fmt::format("job of run {}", run.id.value())));
  return prepare(job);
}

Result<model::Snapshot> make_initial_model(const RunContext& context, std::uint64_t seed) {
  auto model =
      std::make_shared<const model::Parameters>(model::initial_parameters(*context.model, seed));
  // Bounds that no sum can hold are refused now, not when clients have trained.
  STARLING_TRY(RoundAggregate::begin(context, context.schema(), model));
  return model;
}

}  // namespace

Result<std::shared_ptr<const RunContext>> prepare_context(const Job& job) {
  STARLING_ASSIGN(RunContext context, prepare_run(job, nullptr));
  return std::make_shared<const RunContext>(std::move(context));
}

Result<void> try_job(const Job& job, const PrepareContext& prepare) {
  STARLING_ASSIGN(const auto context, prepare(job));
  STARLING_TRY(make_initial_model(*context, job.job.seed));
  return {};
}

Result<LoadedRun> load_new_run(const store::Run& run, const PrepareContext& prepare) {
  STARLING_ASSIGN(const auto context, load_context(run, prepare));
  STARLING_ASSIGN(const auto model, make_initial_model(*context, run.seed));
  return LoadedRun{context, {run.id, 0, model->sha256()}, model};
}

Result<LoadedRun> load_running_run(const store::Run& run, const PrepareContext& prepare,
                                   const store::Checkpoints& checkpoints,
                                   const store::ModelRecord& last) {
  STARLING_ASSIGN(const auto context, load_context(run, prepare));
  STARLING_ASSIGN(model::SafetensorsFile file,
                  model::load_safetensors(checkpoints.disk(), checkpoints.path(last.round),
                                          {.expected = context->model->layout()}));
  const auto model = std::make_shared<const model::Parameters>(std::move(file.parameters));
  return LoadedRun{context, {run.id, last.round, last.sha256}, model};
}

Result<void> write_model(const store::Checkpoints& checkpoints, Round round,
                         const model::Snapshot& model) {
  const std::array<SharedBytes, 2> parts = {
      SharedBytes::own(model::safetensors_header(*model->layout(), {})),
      SharedBytes(model, as_bytes(model->values()))};
  return checkpoints.write(round, parts);
}

Result<Sha256Digest> hash_model_file(Disk& disk, const std::filesystem::path& file) {
  STARLING_ASSIGN(const model::SafetensorsFile loaded, model::load_safetensors(disk, file));
  return loaded.parameters.sha256();
}

}  // namespace starling::coordinator

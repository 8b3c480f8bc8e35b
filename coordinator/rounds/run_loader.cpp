// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coordinator/job/job_text.h"
#include "core/aggregate/fixed_point_sum.h"
#include "core/base/counted.h"
#include "core/model/safetensors.h"
#include "core/strategy/state_file.h"

namespace starling::coordinator {
namespace {

Result<Job> job_of(const store::Run& run, const strategy::Catalogue& strategies) {
  return parse_job(run.job, fmt::format("job of run {}", run.id.value()), strategies);
}

// None of a run that an earlier version began.
Result<std::optional<client::DataShape>> stored_shape(const store::Run& run) {
  if (run.settings.empty()) return std::optional<client::DataShape>();
  STARLING_ASSIGN(Settings settings, parse_settings(run.settings));
  std::erase_if(settings, [](const auto& setting) {
    constexpr std::array<std::string_view, 7> kShape = {
        "data.input", "data.classes",       "data.columns",       "data.class-names",
        "data.scale", "data.scale-offsets", "data.scale-divisors"};
    return std::ranges::find(kShape, setting.first) == kShape.end();
  });
  client::DataShape shape;
  STARLING_TRY(from_settings("data", settings, shape));
  return std::optional(shape);
}

// Differs between two runs that were given one number; the same after a restart or a restore.
std::uint32_t run_key(const store::Run& run) {
  const std::uint64_t sum = checksum(as_bytes(run.submit_token + '\n' + run.job));
  return std::max(static_cast<std::uint32_t>(sum), std::uint32_t{1});
}

// The largest state that is read: a few vectors of a model.
constexpr std::size_t kStateBytesMax = std::size_t{1} << 40;

Result<strategy::StateSnapshot> load_state(const store::Checkpoints& checkpoints,
                                           const store::ModelRecord& last) {
  if (!last.state) return strategy::StateSnapshot();
  STARLING_ASSIGN(const Bytes file, read_file(checkpoints.disk(),
                                              checkpoints.state_path(last.round), kStateBytesMax));
  return strategy::parse_state(file);
}

// The context keeps no model: rounds have their own.
LoadedRun loaded_run(RunContext context, RunPosition at) {
  context.external.reset();
  return {std::make_shared<const RunContext>(std::move(context)), std::move(at)};
}

using FileParts = std::array<SharedBytes, 2>;

FileParts model_file(const RunPosition& position, const std::string& settings) {
  const model::Snapshot& model = position.model;
  const model::Metadata metadata = {{"starling.run", std::to_string(position.version.run.value())},
                                    {"starling.round", std::to_string(position.version.round)},
                                    {"starling.settings", settings},
                                    {"starling.version", STARLING_VERSION}};
  return {SharedBytes::own(model::safetensors_header(*model->layout(), metadata)),
          SharedBytes(model, as_bytes(model->values()))};
}

Sha256Digest hash_of(const FileParts& parts) {
  Sha256 digest;
  for (const SharedBytes& part : parts) digest.update(part.view());
  return std::move(digest).finish();
}

}  // namespace

Error as_wrong_job(const Error& error) {
  const bool refused =
      error.kind() == ErrorKind::kRejected || error.kind() == ErrorKind::kUnsupported;
  return refused ? error.as(ErrorCategory::kUsage) : error;
}

Result<RunContext> prepare_context(const Job& job, const ExternalOrigin& origin) {
  return prepare_run(job, nullptr, strategy::builtin_strategies(), origin);
}

Result<void> check_bounds(const Job& job) {
  const update::Bounds bounds = job.bounds();
  STARLING_TRY(aggregate::FixedPointScale::for_bounds(bounds.value_max, bounds.weight_max,
                                                      bounds.contributions_max));
  return {};
}

Result<void> check_spool(const RunContext& context, const store::UploadSpool::Options& spool) {
  const std::uint64_t bytes = update::payload_bytes_max(context.schema().vectors);
  const std::uint64_t fit = store::UploadSpool::uploads_max(spool, bytes);
  if (fit == 0) {
    return wrong_setting("spool-too-small",
                         fmt::format("an update has {}, and the spool holds none: raise "
                                     "spool.disk-bytes or spool.memory-bytes in coordinator.toml",
                                     format_byte_count(bytes)));
  }
  if (context.job.aggregation.joint_rule() == nullptr) return {};
  const auto cohort = static_cast<std::uint64_t>(context.job.round.cohort);
  if (cohort <= fit) return {};
  return wrong_setting(
      "spool-too-small",
      fmt::format(
          "aggregation.rule = '{}' needs the {} of a round at once, {} each, and the spool "
          "holds {}: lower round.cohort, or raise spool.disk-bytes or spool.memory-bytes in "
          "coordinator.toml",
          context.job.aggregation.rule, counted(cohort, "update"), format_byte_count(bytes), fit));
}

bool lacks_initial_model(const Job& job) {
  return job.training.model.is_external() && job.training.model.initial.empty();
}

Result<TriedJob> try_job(const Job& submitted, const PrepareContext& prepare,
                         const std::optional<LearnedShape>& learned, bool trainer_initializes) {
  Job job = submitted;
  STARLING_TRY(check_new_job(job));
  STARLING_TRY(check_stop_dataset(job));
  STARLING_TRY(check_bounds(job));
  if (learned) job.training.data = learned->shape;
  STARLING_TRY(check_scale_said(job));
  const bool is_made_later = trainer_initializes && lacks_initial_model(job);
  if (lacks_shape(job) || is_made_later) return TriedJob{job, std::nullopt};
  STARLING_ASSIGN(RunContext context, prepare(job, {}));
  if (learned) STARLING_TRY(check_learned_size(*learned, context.layout->size()));
  return TriedJob{std::move(context.job), context.initial_sha256};
}

Result<LoadedRun> load_new_run(const store::Run& run, const strategy::Catalogue& strategies,
                               const PrepareContext& prepare,
                               const std::optional<LearnedShape>& learned,
                               const model::Snapshot& made) {
  STARLING_ASSIGN(Job job, job_of(run, strategies));
  if (learned) job.training.data = learned->shape;
  STARLING_ASSIGN(RunContext context,
                  prepare(job, {.model = made, .initial_sha256 = run.initial_sha256}));
  STARLING_TRY(check_bounds(context.job));
  if (learned) STARLING_TRY(check_learned_size(*learned, context.layout->size()));
  RunPosition initial = context.initial_position(run.id, run.seed);
  initial.version.run_key = run_key(run);
  LoadedRun loaded = loaded_run(std::move(context), std::move(initial));
  if (made) loaded.made_sha256 = hash_of(model_file(loaded.at, loaded.context->job_settings()));
  return loaded;
}

Result<LoadedRun> load_running_run(const store::Run& run, const strategy::Catalogue& strategies,
                                   const PrepareContext& prepare,
                                   const store::Checkpoints& checkpoints,
                                   const store::ModelRecord& last) {
  STARLING_ASSIGN(Job job, job_of(run, strategies));
  STARLING_ASSIGN(const auto shape, stored_shape(run));
  if (shape) job.training.data = *shape;
  const bool by_position =
      run.settings.find("\"data.match\"") == run.settings.npos;  // earlier ones
  if (by_position) job.data.match = kMatchPosition;
  const std::filesystem::path path = checkpoints.path(last.round);
  ExternalOrigin origin;
  if (job.training.model.is_external()) {
    STARLING_ASSIGN(model::Parameters read, model::load_external_model(checkpoints.disk(), path));
    origin.model = std::make_shared<const model::Parameters>(std::move(read));
  }
  STARLING_ASSIGN(RunContext context, prepare(job, origin));
  model::Snapshot model = origin.model;
  if (!model) {
    STARLING_ASSIGN(
        model::SafetensorsFile file,
        model::load_safetensors(checkpoints.disk(), path, {.expected = context.layout}));
    model = std::make_shared<const model::Parameters>(std::move(file.parameters));
  }
  STARLING_ASSIGN(strategy::StateSnapshot state, load_state(checkpoints, last));
  RunPosition at = make_position(*context.strategy, {run.id, last.round, last.sha256, run_key(run)},
                                 std::move(model), std::move(state));
  return loaded_run(std::move(context), std::move(at));
}

Result<store::ModelRecord> write_position(const store::Checkpoints& checkpoints,
                                          const RunPosition& position,
                                          const std::string& settings) {
  const Round round = position.version.round;
  store::ModelRecord record{.round = round, .sha256 = position.version.sha256};
  if (position.state != nullptr) {
    const std::vector<SharedBytes> parts = strategy::encode_state(position.state);
    Sha256 digest;
    std::uint64_t bytes = 0;
    for (const SharedBytes& part : parts) {
      digest.update(part.view());
      bytes += part.size();
    }
    record.state = store::StateFile{std::move(digest).finish(), bytes};
    STARLING_TRY(checkpoints.write_state(round, parts));
  }
  STARLING_TRY(checkpoints.write(round, model_file(position, settings)));
  return record;
}

Result<Sha256Digest> hash_model_file(Disk& disk, const std::filesystem::path& file) {
  STARLING_ASSIGN(const model::SafetensorsFile loaded, model::load_safetensors(disk, file));
  return loaded.parameters.sha256();
}

}  // namespace starling::coordinator

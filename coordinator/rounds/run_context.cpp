// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coordinator/job/job_text.h"
#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/data_shape.h"
#include "core/data/load.h"

namespace starling::coordinator {
namespace {

const std::string kJobSays = "the job (data.input, data.classes)";

// `said_by`: what says the part of `shape` that is known.
Result<void> fill_shape(client::DataShape& shape, const data::Dataset& dataset,
                        const std::string& said_by) {
  const client::DataShape found = client::DataShape::of(dataset.shape(), dataset.classes());
  if (shape.input.empty()) shape.input = found.input;
  if (shape.classes == 0) shape.classes = found.classes;
  STARLING_ASSIGN(const data::Shape wanted, shape.shape());
  if (wanted != dataset.shape() || shape.classes < found.classes) {
    return wrong_setting("data-mismatch",
                         fmt::format("the data set {} has the shape {}; {} says {}", dataset.name(),
                                     describe_shape(found), said_by, describe_shape(shape)));
  }
  return {};
}

Error as_wrong_setting(const Error& error) { return error.as(ErrorCategory::kUsage); }

// Whether the evaluation data say the names of the run's rows. Clients that train on by gossip take
// their columns by position.
bool adopts_names(const Job& job) {
  return job.data.match == kMatchNames && !job.fallback.enabled();
}

// What `shape` does not say of the rows' names becomes that of the dataset.
Result<void> adopt_names(client::DataShape& shape, const data::Dataset& dataset) {
  if (shape.columns.empty()) {
    const auto bytes = FieldText<std::vector<std::string>>::write(dataset.feature_names()).size();
    if (bytes > client::kNamesBytesMax) {
      return wrong_setting(
          "names-too-long",
          fmt::format(
              "the names of the columns take {}, and a message carries {}: use shorter "
              "ones, or set data.match = \"position\" where all files have the same columns "
              "in the same order",
              format_byte_count(bytes), format_byte_count(client::kNamesBytesMax)));
    }
    shape.columns = dataset.feature_names();
  }
  if (shape.class_names.empty()) {
    shape.class_names = dataset.class_names();
    if (!shape.class_names.empty()) shape.classes = static_cast<int>(shape.class_names.size());
  }
  return shape.check_names();
}

// Classes of the clients' rows that the evaluation data lack. Only a simulation knows them.
void adopt_more_classes(client::DataShape& shape, const data::Dataset& evaluation,
                        const data::Dataset& rows, bool by_name) {
  const bool is_meant = by_name || rows.class_names().empty();
  if (shape.classes != 0 || !is_meant || rows.classes() <= evaluation.classes()) return;
  shape.classes = rows.classes();
  shape.class_names = rows.class_names();
}

// Where the job states no numbers to scale by, they become those of `rows`, which then has its
// columns in the run's order.
Result<void> adopt_scale(client::DataShape& shape, std::shared_ptr<const data::Dataset>& rows) {
  if (!shape.scales() || !shape.scale_offsets.empty()) return {};
  if (rows->feature_names().empty()) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("data.scale = \"{}\" is for the columns of csv files, and {} is of another "
                    "kind: leave it out (images are scaled as they are read)",
                    shape.scale, rows->name()));
  }
  STARLING_TRY(data::fit_to(rows, shape.names()));
  data::Scaling scaling = shape.scale == client::kScaleStandard ? data::standard_scaling(*rows)
                                                                : data::minmax_scaling(*rows);
  shape.scale_offsets = std::move(scaling.offsets);
  shape.scale_divisors = std::move(scaling.divisors);
  return shape.check_scaling();
}

Result<std::shared_ptr<const data::Dataset>> load_evaluation(const Job& job) {
  constexpr const char* kKey = "evaluate.dataset";
  const auto spec = data::DatasetSpec::parse(job.evaluate.dataset);
  if (!spec) return spec.error().within(kKey);
  auto dataset = data::load_dataset(*spec);
  if (!dataset) return dataset.error().within(kKey);
  return dataset;
}

// Null: it has none.
const model::TensorInfo* find_buffer(const model::Layout& layout) {
  const auto found =
      std::ranges::find(layout.tensors(), model::Role::kBuffer, &model::TensorInfo::role);
  return found == layout.tensors().end() ? nullptr : &*found;
}

// What does not depend on who computes with the model.
Result<RunContext> complete(RunContext context, const strategy::Catalogue& strategies) {
  const Job& job = context.job;
  STARLING_ASSIGN(context.strategy, strategies.make_server(job.training.strategy, job.server));
  resolve_norm_max(context.job.aggregation, *context.strategy,
                   find_buffer(*context.layout) != nullptr);
  context.for_clients = job.training;
  context.for_clients.model.initial.clear();
  context.for_clients.strategy = strategies.for_clients(job.training.strategy);
  return context;
}

// Buffers are averaged, which needs steps of the model to be what clients send.
Result<void> check_buffers(const model::Layout& layout,
                           const strategy::ServerStrategy<float>& strategy,
                           const std::string& name) {
  const model::TensorInfo* const buffer = find_buffer(layout);
  if (buffer == nullptr || strategy.instead_of_step().empty()) return {};
  return wrong_setting(
      "setting-invalid",
      fmt::format(
          "the model has buffers, such as '{}', which are averaged, and with strategy.name = "
          "'{}' clients send {}: use another strategy",
          buffer->name, name, strategy.instead_of_step()));
}

// Of the file that `model.initial` names.
Result<model::HashedModel> read_initial(const std::string& path) {
  constexpr const char* kKey = "model.initial";
  if (path.empty()) {
    return wrong_setting("no-initial-model",
                         "model.kind = \"external\" needs a model to begin with: name its "
                         "safetensors file in model.initial, or set [trainer] command in "
                         "coordinator.toml and start the service again, so that the coordinator's "
                         "trainer makes it");
  }
  SystemDisk disk;
  auto read = model::load_hashed_model(disk, path);
  if (!read) return as_wrong_setting(read.error()).within(kKey);
  const auto values = std::as_const(read->model).values();
  const bool is_finite = std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  if (is_finite) return read;
  return wrong_setting("bad-model", path + " has values that are not finite").within(kKey);
}

Result<RunContext> prepare_external(const Job& job, const strategy::Catalogue& strategies,
                                    const ExternalOrigin& origin) {
  RunContext context{.job = job, .external = origin.model};
  client::TrainingSettings& training = context.job.training;
  if (!context.external) {
    STARLING_ASSIGN(model::HashedModel file, read_initial(training.model.initial));
    context.initial_sha256 = file.file_sha256;
    if (origin.initial_sha256 && origin.initial_sha256 != context.initial_sha256) {
      return wrong_setting(
          "initial-differs",
          fmt::format("model.initial: {} is not the file that the run was submitted with: its "
                      "SHA-256 was {} and is {}; submit the job again to begin with the new file",
                      training.model.initial, origin.initial_sha256->hex(),
                      file.file_sha256.hex()));
    }
    context.external = std::make_shared<const model::Parameters>(std::move(file.model));
  }
  context.layout = context.external->layout();
  const std::string found = model::digest_of(*context.layout).hex();
  if (!training.model.layout.empty() && training.model.layout != found) {
    return wrong_setting(
        "layout-mismatch",
        fmt::format("model.layout is not that of the model's tensors, which is {}", found));
  }
  training.model.layout = found;
  STARLING_ASSIGN(context, complete(std::move(context), strategies));
  STARLING_TRY(check_buffers(*context.layout, *context.strategy, job.training.strategy.name));
  return context;
}

}  // namespace

bool RunContext::evaluates(Round round) const {
  const Round every = static_cast<Round>(job.evaluate.every);
  if ((!evaluation && !job.evaluate.by_trainer()) || every == 0) return false;
  return round % every == 0 || round == static_cast<Round>(job.job.rounds);
}

std::string RunContext::job_settings() const {
  return settings_to_json(coordinator::job_settings(job));
}

std::vector<std::string> RunContext::abilities() const { return needed_abilities(for_clients); }

bool RunContext::uniform_weights() const {
  if (job.aggregation.weight != "strategy") return job.aggregation.weight == "uniform";
  return strategy->weighting() == strategy::Weighting::kUniform;
}

update::Schema RunContext::schema() const {
  update::Schema schema{.scalars = strategy->scalars(), .bounds = job.bounds()};
  schema.scalars.push_back("train_loss");
  for (const std::string& name : strategy->receives()) {
    const bool is_model = name == strategy::kModelVector;
    const auto dense = is_model ? update::Encoding::kFloat32Delta : update::Encoding::kFloat32;
    schema.vectors.push_back(
        {.name = name, .encoding = update::sparse_of(dense), .elements = layout->size()});
  }
  return schema;
}

RunPosition RunContext::initial_position(RunId run, std::uint64_t seed) const {
  model::Snapshot initial = external;
  if (model) {
    initial = std::make_shared<const model::Parameters>(model::initial_parameters(*model, seed));
  }
  return first_position(*strategy, {run, 0, initial->sha256()}, initial);
}

void resolve_norm_max(AggregationOptions& options, const strategy::ServerStrategy<float>& strategy,
                      bool has_buffers) {
  if (options.norm_max != kNormMaxOfStrategy) return;
  options.norm_max = strategy.instead_of_step().empty() && !has_buffers ? "10x" : "off";
}

Result<RunContext> prepare_run(const Job& job,
                               const std::shared_ptr<const data::Dataset>& known_shape,
                               const strategy::Catalogue& strategies,
                               const ExternalOrigin& origin) {
  if (job.training.model.is_external()) return prepare_external(job, strategies, origin);
  RunContext context{.job = job};
  client::DataShape& shape = context.job.training.data;
  shape.complete();
  const client::DataShape said = shape;
  if (job.evaluate.on_dataset()) {
    constexpr const char* kKey = "evaluate.dataset";
    STARLING_ASSIGN(auto dataset, load_evaluation(job));
    if (known_shape) adopt_more_classes(shape, *dataset, *known_shape, adopts_names(job));
    STARLING_TRY(fill_shape(shape, *dataset, kJobSays));
    const auto named = adopts_names(job) ? adopt_names(shape, *dataset) : Result<void>();
    if (!named) return named.error().within(kKey);
    const auto scaled = adopt_scale(shape, dataset);
    if (!scaled) return as_wrong_setting(scaled.error()).within(kKey);
    const data::NamedAs as{dataset->name(), "the job", false, true};
    const auto fitted = data::fit_to(dataset, shape.names(), as);
    if (!fitted) return as_wrong_setting(fitted.error()).within(kKey);
    context.evaluation = data::DatasetView{std::move(dataset)};
  }
  if (known_shape) {
    constexpr const char* kKey = "data.dataset";
    const bool by_job = !context.evaluation || (!said.input.empty() && said.classes > 0);
    STARLING_TRY(fill_shape(shape, *known_shape,
                            by_job ? kJobSays : "evaluate.dataset = " + job.evaluate.dataset));
    const bool adopts = adopts_names(job) && !context.evaluation;
    const auto named = adopts ? adopt_names(shape, *known_shape) : Result<void>();
    if (!named) return named.error().within(kKey);
    auto rows = known_shape;
    const auto scaled = adopt_scale(shape, rows);
    if (!scaled) return as_wrong_setting(scaled.error()).within(kKey);
    data::NamedAs as{known_shape->name(), "the job", false, !context.evaluation};
    if (context.evaluation) as.run = context.evaluation->dataset->name();
    const auto fits = data::fits(*known_shape, shape.names(), as);
    if (!fits) return as_wrong_setting(fits.error()).within(kKey);
  }
  STARLING_TRY(check_scale_said(context.job));
  if (shape.input.empty() || shape.classes == 0) {
    return wrong_setting(
        "no-data-shape",
        "the job says nothing of the data's shape: name an evaluate.dataset, or set "
        "data.input and data.classes");
  }
  STARLING_ASSIGN(context.model, context.job.training.make_model());
  context.layout = context.model->layout();
  return complete(std::move(context), strategies);
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_context.h"

#include <fmt/format.h>

#include "coordinator/job/job_text.h"
#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/data_shape.h"
#include "core/client/abilities.h"
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

// What `shape` does not say of the rows' names becomes that of the dataset. Clients that train on
// by gossip hold their rows as their files have them, so nothing is matched by name there.
Result<void> fill_names(client::DataShape& shape, const data::Dataset& dataset, const Job& job) {
  if (shape.class_names.empty()) shape.class_names = dataset.class_names();
  if (job.fallback.enabled()) {
    if (shape.class_names.empty()) return {};
    return wrong_setting(
        "text-labels",
        "labels that are texts and fallback.topology do not go together yet; write "
        "the classes' numbers, from 0, in every file");
  }
  if (shape.columns.empty()) shape.columns = dataset.feature_names();
  if (shape.classes == 0) shape.classes = static_cast<int>(shape.class_names.size());
  // What does not fit into a message is matched by position.
  if (FieldText<std::vector<std::string>>::write(shape.columns).size() > client::kNamesBytesMax) {
    shape.columns.clear();
  }
  return shape.check_names();
}

Result<std::shared_ptr<const data::Dataset>> load_evaluation(const Job& job) {
  constexpr const char* kKey = "evaluate.dataset";
  const auto spec = data::DatasetSpec::parse(job.evaluate.dataset);
  if (!spec) return spec.error().within(kKey);
  auto dataset = data::load_dataset(*spec);
  if (!dataset) return dataset.error().within(kKey);
  return dataset;
}

}  // namespace

bool RunContext::evaluates(Round round) const {
  const Round every = static_cast<Round>(job.evaluate.every);
  if (!evaluation || every == 0) return false;
  return round % every == 0 || round == static_cast<Round>(job.job.rounds);
}

std::string RunContext::job_settings() const {
  return settings_to_json(coordinator::job_settings(job));
}

std::vector<std::string> RunContext::abilities() const {
  std::vector<std::string> needed =
      needed_abilities(for_clients.strategy.name, for_clients.model.kind);
  if (!for_clients.data.class_names.empty()) needed.emplace_back(client::kNamesAbility);
  return needed;
}

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
        {.name = name, .encoding = update::sparse_of(dense), .elements = model->layout()->size()});
  }
  return schema;
}

RunPosition RunContext::initial_position(RunId run, std::uint64_t seed) const {
  auto initial = std::make_shared<const model::Parameters>(model::initial_parameters(*model, seed));
  return first_position(*strategy, {run, 0, initial->sha256()}, initial);
}

void resolve_norm_max(AggregationOptions& options,
                      const strategy::ServerStrategy<float>& strategy) {
  if (options.norm_max != kNormMaxOfStrategy) return;
  options.norm_max = strategy.instead_of_step().empty() ? "10x" : "off";
}

Result<RunContext> prepare_run(const Job& job,
                               const std::shared_ptr<const data::Dataset>& known_shape,
                               const strategy::Catalogue& strategies) {
  RunContext context{.job = job};
  client::DataShape& shape = context.job.training.data;
  if (!job.evaluate.dataset.empty() && job.evaluate.every > 0) {
    STARLING_ASSIGN(auto dataset, load_evaluation(job));
    STARLING_TRY(fill_names(shape, *dataset, job));
    const auto fitted = data::fit_to(dataset, shape.names());
    if (!fitted) return as_wrong_setting(fitted.error()).within("evaluate.dataset");
    STARLING_TRY(fill_shape(shape, *dataset, kJobSays));
    context.evaluation = data::DatasetView{std::move(dataset)};
  }
  if (known_shape) {
    if (!context.evaluation) STARLING_TRY(fill_names(shape, *known_shape, job));
    const auto fits = data::fits(*known_shape, shape.names());
    if (!fits) return as_wrong_setting(fits.error()).within("data.dataset");
    const client::DataShape& said = job.training.data;
    const bool by_job = !context.evaluation || (!said.input.empty() && said.classes > 0);
    STARLING_TRY(fill_shape(shape, *known_shape,
                            by_job ? kJobSays : "evaluate.dataset = " + job.evaluate.dataset));
  }
  STARLING_TRY(shape.check_names());
  if (shape.input.empty() && !shape.columns.empty()) {
    shape.input = {static_cast<int>(shape.columns.size())};
  }
  if (shape.classes == 0) shape.classes = static_cast<int>(shape.class_names.size());
  if (shape.input.empty() || shape.classes == 0) {
    return wrong_setting(
        "no-data-shape",
        "the job says nothing of the data's shape: name an evaluate.dataset, or set "
        "data.input and data.classes");
  }
  STARLING_ASSIGN(context.model, context.job.training.make_model());
  STARLING_ASSIGN(context.strategy, strategies.make_server(job.training.strategy, job.server));
  resolve_norm_max(context.job.aggregation, *context.strategy);
  context.for_clients = context.job.training;
  context.for_clients.strategy = strategies.for_clients(job.training.strategy);
  return context;
}

}  // namespace starling::coordinator

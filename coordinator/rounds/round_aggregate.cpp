// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/round_aggregate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace starling::coordinator {

namespace {

std::map<TaskId, std::string> clients_of(const std::vector<Participant>& participants) {
  std::map<TaskId, std::string> clients;
  for (const Participant& participant : participants) {
    clients.emplace(participant.task, participant.client);
  }
  return clients;
}

// The model's buffers after a round, one behind the other: what they were and the mean change,
// whatever the strategy makes of the other tensors. `changes`: of all tensors.
std::vector<float> average_buffers(const model::Parameters& base, const aggregate::Means& changes) {
  std::vector<float> buffers;
  for (const model::TensorInfo& tensor : base.layout()->tensors()) {
    if (tensor.role != model::Role::kBuffer) continue;
    const std::span<const float> before = base.values(tensor);
    for (std::size_t i = 0; i < before.size(); ++i) {
      buffers.push_back(
          static_cast<float>(static_cast<double>(before[i]) + changes[tensor.offset + i]));
    }
  }
  return buffers;
}

void set_buffers(std::span<const float> buffers, model::Parameters& model) {
  for (const model::TensorInfo& tensor : model.layout()->tensors()) {
    if (tensor.role != model::Role::kBuffer) continue;
    const std::span<float> values = model.values(tensor);
    std::ranges::copy(buffers.first(values.size()), values.begin());
    buffers = buffers.subspan(values.size());
  }
}

}  // namespace

BufferChoices::BufferChoices(const model::Layout& layout,
                             const std::vector<Participant>& participants) {
  for (const model::TensorInfo& tensor : layout.tensors()) {
    const bool is_mean = tensor.rule == model::BufferRule::kMean;
    if (tensor.role == model::Role::kBuffer && !is_mean) parts_.push_back({tensor});
  }
  if (!parts_.empty()) clients_ = clients_of(participants);
}

Result<void> BufferChoices::add(const update::Contribution& contribution) {
  if (parts_.empty()) return {};
  const std::string& client = clients_.at(contribution.head().task);
  const bool is_last = client > last_;
  std::vector<float> values;
  for (auto& [tensor, changes] : parts_) {
    values.resize(tensor.size());
    STARLING_TRY(contribution.read(0, tensor.offset, values));
    if (changes.empty()) changes = values;
    if (tensor.rule == model::BufferRule::kMaximum) {
      std::ranges::transform(changes, values, changes.begin(),
                             [](float a, float b) { return std::max(a, b); });
    } else if (is_last) {
      changes = values;
    }
  }
  if (is_last) last_ = client;
  return {};
}

void BufferChoices::apply(const model::Parameters& base, model::Parameters& model) const {
  for (const auto& [tensor, changes] : parts_) {
    const std::span<const float> before = base.values(tensor);
    const std::span<float> after = model.values(tensor);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      after[i] = static_cast<float>(static_cast<double>(before[i]) + changes[i]);
    }
  }
}

Result<std::unique_ptr<RoundAggregate>> RoundAggregate::begin(
    std::shared_ptr<const RunContext> context, const BeginRound& phase) {
  STARLING_ASSIGN(Rule rule, make_rule(*context, phase));
  return std::unique_ptr<RoundAggregate>(
      new RoundAggregate(std::move(context), phase, std::move(rule)));
}

Result<RoundAggregate::Rule> RoundAggregate::make_rule(const RunContext& context,
                                                       const BeginRound& phase) {
  auto rule = context.job.aggregation.joint_rule();
  if (rule == nullptr && phase.kind == protocol::TaskKind::kEvaluate) {
    return Rule(MeasuredMeans(context.job.stop.federated_name()));
  }
  if (rule == nullptr) {
    update::Schema schema = phase.schema;
    const auto range = context.strategy->values();
    if (range == aggregate::ValueRange::kFloat32 && context.uniform_weights()) {
      schema.bounds.weight_max = 1;  // each counts as 1: a finer scale
    }
    STARLING_ASSIGN(aggregate::WeightedMean mean,
                    aggregate::WeightedMean::create(schema, schema.scalars, range));
    return Rule(std::move(mean));
  }
  return Rule(Joint{.rule = std::move(rule), .clients = clients_of(phase.participants)});
}

RoundAggregate::RoundAggregate(std::shared_ptr<const RunContext> context, const BeginRound& phase,
                               Rule rule)
    : context_(std::move(context)),
      kind_(phase.kind),
      round_(phase.round),
      schema_(phase.schema),
      base_(phase.base),
      population_(phase.population),
      norm_max_(phase.norm_max),
      rule_(std::move(rule)) {
  // A rule of all updates at once goes for all buffers: it is there so that no client alone says a
  // value, as it could say a maximum.
  const bool sums = std::holds_alternative<aggregate::WeightedMean>(*rule_);
  if (sums) choices_ = BufferChoices(*base_.model->layout(), phase.participants);
}

// Strategies divide by what they average.
Result<void> RoundAggregate::check_scalars(const update::ContributionHead& head) const {
  if (kind_ != protocol::TaskKind::kTrain) return check_measured(head);
  for (const std::string& name : context_->strategy->scalars()) {
    const auto found = head.scalars.find(name);
    if (found != head.scalars.end() && found->second > 0) continue;
    return rejected(
        "bad-scalars",
        fmt::format("the update's scalar '{}' is not above 0, as this strategy needs", name));
  }
  return check_train_metrics(head);
}

Result<double> RoundAggregate::add(update::ContributionHead head, update::Payload payload) {
  STARLING_TRY(check_scalars(head));
  STARLING_ASSIGN(update::Contribution contribution,
                  update::validate(std::move(head), std::move(payload), schema_));
  const double norm = contribution.norm();
  if (norm_max_ && norm > *norm_max_) {
    return rejected(std::string(kNormAboveBound),
                    fmt::format("the update's norm {:.4g} is above {:.4g} (aggregation.norm-max)",
                                norm, *norm_max_));
  }
  STARLING_TRY(take(std::move(contribution)));
  return norm;
}

Result<void> RoundAggregate::take(update::Contribution contribution) {
  if (auto* mean = std::get_if<aggregate::WeightedMean>(&*rule_)) {
    STARLING_TRY(mean->accumulate(contribution));
    const auto added = choices_.add(contribution);
    if (!added) return internal(added.error().code(), added.error().message());
    train_metrics_.add(contribution.head());
    return {};
  }
  if (auto* measured = std::get_if<MeasuredMeans>(&*rule_)) {
    measured->add(contribution.head());
    return {};
  }
  auto& [rule, clients, updates] = std::get<Joint>(*rule_);
  const std::string& client = clients.at(contribution.head().task);
  train_metrics_.add(contribution.head());
  updates.keep(client, std::move(contribution));
  return {};
}

Result<aggregate::Report> RoundAggregate::report() {
  if (auto* mean = std::get_if<aggregate::WeightedMean>(&*rule_)) return std::move(*mean).report();
  const auto& [rule, clients, updates] = std::get<Joint>(*rule_);
  return rule->report(schema_, updates);
}

Result<RoundOutcome> RoundAggregate::train(aggregate::Report& report) {
  RoundOutcome outcome;
  linalg::AlignedVector<float> next;
  next.reserve(base_.model->size());
  strategy::State<float> state = base_.state ? *base_.state : strategy::State<float>();
  // Of models that have buffers, the first vector is the step: see prepare_run().
  const std::vector<float> buffers = average_buffers(*base_.model, report.vectors.front());
  STARLING_TRY(context_->strategy->apply(base_.model->values(), next, state,
                                         {.report = report, .population = population_}));
  model::Parameters model(base_.model->layout(), std::move(next));
  set_buffers(buffers, model);
  choices_.apply(*base_.model, model);
  update::ModelVersion version = base_.version;
  version.round = round_;
  version.sha256 = model.sha256();
  outcome.next = make_position(*context_->strategy, version,
                               std::make_shared<model::Parameters>(std::move(model)),
                               std::make_shared<const strategy::State<float>>(std::move(state)));
  if (const auto loss = report.scalars.find("train_loss"); loss != report.scalars.end()) {
    outcome.train_loss = loss->second;
  }
  outcome.train_metrics = train_metrics_.result();
  return outcome;
}

// By the rule of the updates, so that a single client moves a result no further than a model.
Result<Measured> RoundAggregate::measure() {
  if (const auto* means = std::get_if<MeasuredMeans>(&*rule_)) return means->result();
  STARLING_TRY(report());  // whether there are enough
  const auto& joint = std::get<Joint>(*rule_);
  return combine_measured(*joint.rule, joint.updates.heads(), context_->job.stop.federated_name());
}

Result<train::Evaluation> RoundAggregate::evaluate(const model::Snapshot& model, ComputePool* pool,
                                                   ModelEvaluator* external,
                                                   const std::stop_token& stop) const {
  if (context_->model) {
    return train::evaluate(*context_->model, model->values(), *context_->evaluation, pool);
  }
  if (external != nullptr) {
    return external->evaluate(base_.version.run, *context_, round_, model, stop);
  }
  return unsupported("no-trainer",
                     "coordinator.toml names no trainer any more: set [trainer] command, and start "
                     "the service again");
}

Result<RoundOutcome> RoundAggregate::finish(ComputePool* pool, ModelEvaluator* external,
                                            const std::stop_token& stop) && {
  RoundOutcome outcome;
  if (kind_ == protocol::TaskKind::kEvaluate) {
    STARLING_ASSIGN(outcome.measured, measure());
    return outcome;
  }
  {
    STARLING_ASSIGN(aggregate::Report report, this->report());
    rule_.reset();
    STARLING_ASSIGN(outcome, train(report));
  }  // the sums' memory is free before the evaluation takes its own
  if (!context_->evaluates(round_)) return outcome;
  const auto found = evaluate(outcome.next->model, pool, external, stop);
  if (found) {
    outcome.measured =
        Measured{.loss = found->loss, .accuracy = found->accuracy, .metrics = found->metrics};
  } else if (context_->model) {
    return found.error();
  } else {
    outcome.not_evaluated = found.error();  // a trainer's failure is none of the round's
  }
  return outcome;
}

}  // namespace starling::coordinator

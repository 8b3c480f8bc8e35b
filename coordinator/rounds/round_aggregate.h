// SPDX-License-Identifier: Apache-2.0
// The compute half of a phase: validates and sums the contributions, then makes and evaluates the
// next model, or averages what clients measured. Used by one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "coordinator/machine/coordinator_events.h"
#include "coordinator/rounds/measured_means.h"
#include "coordinator/rounds/model_evaluator.h"
#include "coordinator/rounds/run_context.h"
#include "core/aggregate/joint_rule.h"
#include "core/aggregate/weighted_mean.h"

namespace starling::coordinator {

struct RoundOutcome {
  std::optional<RunPosition> next;   // of a training
  std::optional<double> train_loss;  // weighted mean over the contributors
  train::Metrics train_metrics;      // weighted mean of each, over those that report it
  std::optional<Measured> measured;
  std::optional<Error> not_evaluated;  // why the coordinator's trainer measured nothing
};

// The changes of the buffers whose rule takes clients' values as they are: the largest of each
// element, or those of the last client in order of name.
class BufferChoices {
 public:
  BufferChoices() = default;  // of no buffers
  BufferChoices(const model::Layout& layout, const std::vector<Participant>& participants);

  // Of the update's first vector, for a participant's task. "upload-unreadable".
  [[nodiscard]] Result<void> add(const update::Contribution& contribution);
  // Sets the buffers to what they are after the round. Requires: something was added.
  void apply(const model::Parameters& base, model::Parameters& model) const;

 private:
  struct Part {
    model::TensorInfo tensor;
    std::vector<float> changes = {};  // none until something was added
  };
  std::vector<Part> parts_;
  std::map<TaskId, std::string> clients_;  // of the phase's tasks; none without parts
  std::string last_;                       // in order of name, of the clients that were added
};

class RoundAggregate {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RoundAggregate>> begin(
      std::shared_ptr<const RunContext> context, const BeginRound& phase);

  // Returns the Euclidean norm of all its vectors. An update that is refused ("norm-above-bound",
  // and what validation finds) leaves the aggregate as it was, to the bit; kInternal ends it. Of a
  // rule that needs all updates at once, `payload` must stay where it is until finish().
  [[nodiscard]] Result<double> add(update::ContributionHead head, update::Payload payload);
  // Ends the phase; "diverged" where the model would not be finite, "too-few-updates" where the
  // rule needs more. `external` evaluates models that are not built in, until `stop`; null: nothing
  // does. Requires: something was added.
  [[nodiscard]] Result<RoundOutcome> finish(ComputePool* pool, ModelEvaluator* external = nullptr,
                                            const std::stop_token& stop = {}) &&;

 private:
  struct Joint {
    std::unique_ptr<const aggregate::JointRule> rule;
    std::map<TaskId, std::string> clients;  // of the phase's tasks
    update::KeptUpdates updates = {};
  };
  using Rule = std::variant<aggregate::WeightedMean, MeasuredMeans, Joint>;

  static Result<Rule> make_rule(const RunContext& context, const BeginRound& phase);
  RoundAggregate(std::shared_ptr<const RunContext> context, const BeginRound& phase, Rule rule);

  Result<void> check_scalars(const update::ContributionHead& head) const;
  Result<void> take(update::Contribution contribution);
  Result<aggregate::Report> report();
  Result<RoundOutcome> train(aggregate::Report& report);
  Result<Measured> measure();
  Result<train::Evaluation> evaluate(const model::Snapshot& model, ComputePool* pool,
                                     ModelEvaluator* external, const std::stop_token& stop) const;

  std::shared_ptr<const RunContext> context_;
  protocol::TaskKind kind_;
  Round round_;
  update::Schema schema_;
  RunPosition base_;
  std::uint64_t population_;
  std::optional<double> norm_max_;
  std::optional<Rule> rule_;  // until finish()
  BufferChoices choices_;     // of a training by the mean
  MetricMeans train_metrics_;
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/trainer_evaluator.h"

#include <fmt/format.h>

#include <future>

#include "core/client/process_trainer.h"

namespace starling::coordinator {
namespace {

struct Pending {
  std::promise<Result<train::Evaluation>> answer;
  std::atomic<bool> taken = false;  // by the thread that begins it, or by the caller who gives up
};

}  // namespace

TrainerEvaluator::TrainerEvaluator(client::TrainerHost::Options options, Log& log,
                                   std::optional<Duration> patience)
    : patience_(patience.value_or(options.trainer.start_deadline + options.trainer.task_deadline)),
      host_(std::move(options), log) {}

TrainerEvaluator::~TrainerEvaluator() {
  stop();
  thread_.for_each(1, [](std::size_t, unsigned) {});  // the end of the process is behind all else
}

Result<train::Evaluation> TrainerEvaluator::evaluate(const RunContext& context, Round round,
                                                     const model::Snapshot& model) {
  const auto pending = std::make_shared<Pending>();
  auto answer = pending->answer.get_future();
  // Owns what it works on: its caller may not wait for it.
  thread_.submit([this, pending, context, round, model](unsigned) {
    if (pending->taken.exchange(true)) return;
    client::ProcessTrainer trainer(std::string(kEvaluatorClient), host_);
    pending->answer.set_value(evaluate_by(trainer, context, round, model, stopping_));
  });
  const bool ready = answer.wait_for(patience_) == std::future_status::ready;
  if (ready || pending->taken.exchange(true)) return answer.get();  // it ends by its own deadlines
  return retry("trainer-busy",
               fmt::format("the coordinator's trainer was busy for {} with models of other runs; "
                           "raise evaluate.every",
                           format_duration(patience_)));
}

void TrainerEvaluator::stop() {
  if (stopping_.exchange(true)) return;
  thread_.submit([this](unsigned) {
    host_.stop();
    stopped_ = true;
  });
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/trainer_evaluator.h"

#include <fmt/format.h>

#include <future>

#include "core/client/process_trainer.h"

namespace starling::coordinator {
namespace {

// What the caller and the trainer's thread share. The first answer counts.
template <class T>
class Pending {
 public:
  std::future<Result<T>> get_future() { return promise_.get_future(); }
  void answer(Result<T> result) {
    if (!answered_.exchange(true)) promise_.set_value(std::move(result));
  }
  void stop(std::string_view why) {
    stopped = true;
    answer(retry("stopped", std::string(why)));
  }

  std::atomic<bool> stopped = false;
  std::atomic<bool> taken = false;  // by the thread that begins it, or by the caller who gives up

 private:
  std::promise<Result<T>> promise_;
  std::atomic<bool> answered_ = false;
};

}  // namespace

TrainerEvaluator::TrainerEvaluator(client::TrainerHost::Options options, Log& log)
    : host_(std::move(options), log) {}

TrainerEvaluator::~TrainerEvaluator() {
  stop();
  thread_.for_each(1, [](std::size_t, unsigned) {});  // the end of the process is behind all else
}

// The task owns what it works on: its caller may not wait for it.
template <class T>
Result<T> TrainerEvaluator::ask(RunId run, Task<T> task, const std::stop_token& stop,
                                std::optional<Duration> patience) {
  const auto pending = std::make_shared<Pending<T>>();
  auto answer = pending->get_future();
  const std::stop_callback run_ends(stop, [&] { pending->stop("the run was stopped"); });
  const std::stop_callback service_ends(stopping_.get_token(),
                                        [&] { pending->stop("the service was stopped"); });
  thread_.submit([this, run, pending, task = std::move(task)](unsigned) {
    if (pending->taken.exchange(true) || pending->stopped) return;
    at_work_for_ = run;
    Result<T> result = task(pending->stopped);
    at_work_for_ = RunId();
    pending->answer(std::move(result));
  });
  const bool gives_up = patience && answer.wait_for(*patience) != std::future_status::ready &&
                        !pending->taken.exchange(true);
  if (!gives_up) return answer.get();  // what has begun ends by the trainer's own deadlines
  return retry("trainer-busy",
               fmt::format("the coordinator's trainer was busy for {} (round.deadline) with models "
                           "of other runs; raise evaluate.every or round.deadline",
                           format_duration(*patience)));
}

Result<train::Evaluation> TrainerEvaluator::evaluate(RunId run, const RunContext& context,
                                                     Round round, const model::Snapshot& model,
                                                     const std::stop_token& stop) {
  const auto task = [this, context, round, model](const std::atomic<bool>& stopped) {
    client::ProcessTrainer trainer(std::string(kEvaluatorClient), host_);
    return evaluate_by(trainer, context, round, model, stopped);
  };
  return ask<train::Evaluation>(run, task, stop, context.job.round.deadline);
}

Result<model::Snapshot> TrainerEvaluator::initialize(RunId run, const Job& job,
                                                     const std::stop_token& stop) {
  const auto task = [this, job](const std::atomic<bool>& stopped) {
    return initialize_by(host_, std::string(kEvaluatorClient), job, stopped);
  };
  return ask<model::Snapshot>(run, task, stop, std::nullopt);
}

std::optional<RunId> TrainerEvaluator::at_work_for() const {
  const RunId run = at_work_for_;
  return run == RunId() ? std::nullopt : std::optional(run);
}

void TrainerEvaluator::stop() {
  if (!stopping_.request_stop()) return;
  thread_.submit([this](unsigned) {
    host_.stop();
    stopped_ = true;
  });
}

}  // namespace starling::coordinator

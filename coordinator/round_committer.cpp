// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_committer.h"

#include <fmt/format.h>

#include "coordinator/run_records.h"
#include "core/base/check.h"

namespace starling::coordinator {

RoundCommitter::RoundCommitter(net::EventLoop& loop, store::Store& store,
                               const StateDirectory& state, RoundExecutor& executor,
                               RunLog& run_log, Log& log, Duration disk_retry, Handlers handlers)
    : loop_(loop),
      store_(store),
      state_(state),
      executor_(executor),
      run_log_(run_log),
      log_(log),
      disk_retry_(disk_retry),
      handlers_(std::move(handlers)),
      retry_(loop, [this] { write(); }) {}

void RoundCommitter::commit(RoundSummary summary) {
  STARLING_CHECK(!summary_);
  summary_ = std::move(summary);
  executor_.finish(summary_->round,
                   [this](Result<RoundOutcome> outcome) { computed(std::move(outcome)); });
}

void RoundCommitter::computed(Result<RoundOutcome> outcome) {
  if (!outcome) {
    summary_.reset();
    return handlers_.on_durable({outcome.error()});
  }
  outcome_ = std::move(*outcome);
  write();
}

void RoundCommitter::write() {
  executor_.write(checkpoints(), summary_->round, outcome_.model,
                  [this](Result<void> result) { written(std::move(result)); });
}

void RoundCommitter::written(Result<void> result) {
  if (result) {
    const store::ModelRecord model{.round = summary_->round,
                                   .sha256 = outcome_.sha256,
                                   .file = store::Checkpoints::file_name(summary_->round),
                                   .bytes = outcome_.model->size() * sizeof(float)};
    result = store_.commit_attempt({run(), summary_->round, summary_->attempt},
                                   to_record(*summary_, &outcome_), model);
  }
  if (result) return stored();
  if (result.error().kind() == ErrorKind::kOverloaded) return try_again(result.error());
  handlers_.on_broken(result.error().within(fmt::format("round {}", summary_->round)));
}

void RoundCommitter::try_again(const Error& error) {
  run_log_.say(run(), fmt::format("[round {}/{}] waiting for the disk: {}", summary_->round,
                                  plan_.rounds, error.message()));
  retry_.set(loop_.now() + disk_retry_);
}

void RoundCommitter::stored() {
  const RoundSummary summary = *std::exchange(summary_, std::nullopt);
  RoundOutcome outcome = std::exchange(outcome_, {});
  for (const std::string& line : round_lines(summary, &outcome, plan_.rounds)) {
    run_log_.say(summary.run, line);
  }
  const auto models = store_.models(summary.run);
  const store::Checkpoints checkpoints(state_.models(summary.run));
  const auto pruned =
      models ? checkpoints.prune(*models, plan_.keep) : Result<void>(models.error());
  if (!pruned) log_.warning("old models stay for now: {}", pruned.error().message());
  handlers_.on_durable({std::pair(update::ModelVersion{summary.run, summary.round, outcome.sha256},
                                  std::move(outcome.model))});
}

}  // namespace starling::coordinator

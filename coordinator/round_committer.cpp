// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_committer.h"

#include <fmt/format.h>

#include "coordinator/run_records.h"
#include "core/base/check.h"

namespace starling::coordinator {

RoundCommitter::RoundCommitter(Parts parts, Duration disk_retry, Handlers handlers)
    : parts_(std::move(parts)),
      disk_retry_(disk_retry),
      handlers_(std::move(handlers)),
      retry_(parts_.scheduler.make_timer([this] { write(); })) {}

void RoundCommitter::begin(Plan plan) {
  plan_ = plan;
  began_ = parts_.clock.now();
}

void RoundCommitter::commit(RoundSummary summary) {
  STARLING_CHECK(!summary_);
  summary_ = std::move(summary);
  // How long it took, also where the machine's time is virtual.
  summary_->elapsed = parts_.clock.now() - began_;
  parts_.executor.finish(summary_->round,
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
  parts_.executor.write(parts_.checkpoints(run()), summary_->round, outcome_.model,
                        [this](Result<void> result) { written(std::move(result)); });
}

void RoundCommitter::written(Result<void> result) {
  if (result) {
    const store::ModelRecord model{.round = summary_->round,
                                   .sha256 = outcome_.sha256,
                                   .file = store::Checkpoints::file_name(summary_->round),
                                   .bytes = outcome_.model->size() * sizeof(float)};
    result = parts_.store.commit_attempt({run(), summary_->round, summary_->attempt},
                                         to_record(*summary_, &outcome_), model);
  }
  if (result) return stored();
  if (result.error().kind() == ErrorKind::kOverloaded) return try_again(result.error());
  handlers_.on_broken(result.error().within(fmt::format("round {}", summary_->round)));
}

void RoundCommitter::try_again(const Error& error) {
  parts_.run_log.say(run(), fmt::format("[round {}/{}] waiting for the disk: {}", summary_->round,
                                        plan_.rounds, error.message()));
  retry_->set(parts_.scheduler.now() + disk_retry_);
}

void RoundCommitter::stored() {
  const RoundSummary summary = *std::exchange(summary_, std::nullopt);
  RoundOutcome outcome = std::exchange(outcome_, {});
  std::vector<std::string> lines = round_lines(summary, &outcome, plan_.rounds);
  handlers_.on_committed(summary, outcome, lines);
  for (const std::string& line : lines) parts_.run_log.say(summary.run, line);
  const auto models = parts_.store.models(summary.run);
  const auto pruned = models ? parts_.checkpoints(summary.run).prune(*models, plan_.keep)
                             : Result<void>(models.error());
  if (!pruned) parts_.log.warning("old models stay for now: {}", pruned.error().message());
  handlers_.on_durable({std::pair(update::ModelVersion{summary.run, summary.round, outcome.sha256},
                                  std::move(outcome.model))});
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_exclusion.h"

#include <fmt/format.h>

#include "core/base/list_some.h"

namespace starling::coordinator {

void blame(const RunScope& run, const std::string& client, const Error& error, bool permanent) {
  if (is_circumstance(error.code(), protocol::TaskKind::kTrain)) return;
  if (error.code() == client::kStateLost && run.start.counted.contains(client)) return;
  if (!run.start.failures.failed(client, error.message(), permanent)) return;
  run.say(fmt::format("{} is left out of this run from now on: {} ({})", client,
                      permanent
                          ? "it cannot do its tasks"
                          : fmt::format("its last {} tasks failed", ClientFailures::kInARowMax),
                      error.message()));
}

void note_misses(const RunScope& run, const RoundSummary& summary) {
  const bool trains = summary.kind == protocol::TaskKind::kTrain;
  ClientPauses& pauses = trains ? run.start.missed : run.start.evaluation_failures;
  const Round round = summary.round;
  const auto left_out =
      trains ? count_missed(summary.contributors, summary.failures, round, pauses)
             : count_evaluations(summary.contributors, summary.failures, round, pauses);
  // A client whose absence counts when its phase ends may have connected again before.
  for (const RoundFailure& failure : summary.failures) {
    if (failure.code != kDisconnected || !run.clients.connected(failure.client)) continue;
    pauses.came_back(failure.client);
  }
  for (const std::string& client : left_out) {
    const ClientPauses::Row* row = pauses.find_left_out(client, round);
    if (row == nullptr) continue;
    run.say(fmt::format("{} {} ({}); it is asked again from round {} on", client,
                        trains ? fmt::format("is left out of this run for now: {} trainings in a "
                                             "row ended without its update",
                                             row->in_a_row)
                               : fmt::format("is not asked to evaluate in this run for now: {} "
                                             "evaluations that were waited for failed, without "
                                             "one that counted between",
                                             row->in_a_row),
                        row->reason, row->next_chance));
  }
}

void blame_for_norms(const RunScope& run, const RoundSummary& summary, bool commits) {
  if (!run.start.norm_raises.attempt_ended(summary.contributors, summary.failures, commits,
                                           run.start.norms)) {
    return;
  }
  for (const RoundFailure& failure : summary.failures) {
    if (failure.code != kNormAboveBound) continue;
    blame(run, failure.client, rejected(failure.code, failure.reason));
  }
}

void forget_lost_states(const RunScope& run, const std::vector<std::string>& lost) {
  RunStart& start = run.start;
  const Forgotten forgotten = forget_lost(start, lost);
  if (forgotten.all) {
    start.at = first_position(*start.strategy, start.at.version, start.at.model);
    run.say(fmt::format(
        "what '{}' remembers begins again, here and on all clients: {} lost its part of it",
        start.job.training.strategy.name, list_some(lost, kNamedMax, std::identity())));
  }
  for (const std::string& client : forgotten.left_out) {
    run.say(fmt::format("{} is left out of this run from now on: {}", client,
                        *start.failures.why_left_out(client)));
  }
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// Counts the failures of clients: those that fail too often are left out of the run, for good or
// for now, and the run's log names them. Only what is recorded of a phase counts, so that a restart
// decides alike.
#pragma once

#include <string>
#include <vector>

#include "coordinator/machine/run_scope.h"

namespace starling::coordinator {

// A failure of the client's own making at a training; others do not count.
void blame(const RunScope& run, const std::string& client, const Error& error,
           bool permanent = false);
// Of a phase that is over: updates that did not come in time, or failed evaluations. A client that
// fails to evaluate may still train.
void note_misses(const RunScope& run, const RoundSummary& summary);
// Of a training that is over: whether a norm above the bound is the client's fault shows when all
// have come.
void blame_for_norms(const RunScope& run, const RoundSummary& summary, bool commits);
// When the training is over in which these clients said that they lost what the strategy keeps on
// them (lost_states.h).
void forget_lost_states(const RunScope& run, const std::vector<std::string>& lost);

}  // namespace starling::coordinator

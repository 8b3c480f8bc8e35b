// SPDX-License-Identifier: Apache-2.0
// Clients that let one task of a run after the other pass: after a few in a row they are left out
// for now, so that they do not hold up every round. Each gets another chance after a pause, and
// after each chance that it does not use the next pause is twice as long: one that never answers
// holds up a number of rounds that grows with the logarithm of the run's length.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/machine/failure_codes.h"
#include "core/base/ids.h"

namespace starling::coordinator {

// Pauses are counted in rounds: a restart finds the rounds and the failures of each in the records
// and decides alike. Only whether a client has come back since its last task is not recorded, and
// after a restart every client has.
class ClientPauses {
 public:
  static constexpr int kTrainingsInARowMax = 3;
  static constexpr int kEvaluationsInARowMax = 2;  // each may hold a round up to its deadline
  static constexpr Round kFirstPause = 8;          // in rounds

  struct Row {
    int in_a_row = 0;
    std::string reason;      // of the last one, shortened
    Round pause = 0;         // the last one; 0: none yet
    Round next_chance = 0;   // from this round on it may be asked again
    bool came_back = false;  // since the last one
  };

  explicit ClientPauses(int in_a_row_max) : in_a_row_max_(in_a_row_max) {}

  // Its task of that round was missed. Returns whether it is left out from now on. Where it was
  // left out already, because a round could not do without it or because it had come back,
  // its pause stays as it is: such a task is no chance that it had to wait for.
  bool failed(const std::string& client, const std::string& reason, Round round);
  void succeeded(const std::string& client) { rows_.erase(client); }
  // It has connected again, or offers late what it was asked for: one that has missed nothing since
  // it was left out is asked once more at once. The next such chance comes after it has succeeded.
  void came_back(const std::string& client);
  bool left_out(const std::string& client, Round round) const {
    return find_left_out(client, round) != nullptr;
  }
  // Null where the client may be asked for a task of that round.
  const Row* find_left_out(const std::string& client, Round round) const;
  // Whether it is asked at once when it comes back. Requires: it is left out.
  bool may_come_back(const Row& row) const { return row.in_a_row == in_a_row_max_; }

 private:
  int in_a_row_max_;
  std::map<std::string, Row> rows_;  // of clients that missed their last task
};

// Counts the trainings of an attempt that were missed; `missed` holds those in a row of each
// client. A failure that the client reports of itself ends its row, as a contribution does. Returns
// the clients that are left out from now on.
template <class Contributions, class Failures>
std::vector<std::string> count_missed(const Contributions& contributions, const Failures& failures,
                                      Round round, ClientPauses& missed) {
  std::vector<std::string> left_out;
  for (const auto& c : contributions) missed.succeeded(c.client);
  for (const auto& f : failures) {
    if (!is_circumstance(f.code, protocol::TaskKind::kTrain)) missed.succeeded(f.client);
    if (is_miss(f.code) && missed.failed(f.client, f.reason, round)) left_out.push_back(f.client);
  }
  return left_out;
}

// The same of evaluations, of which every failure counts that is not a circumstance.
template <class Contributions, class Failures>
std::vector<std::string> count_evaluations(const Contributions& contributions,
                                           const Failures& failures, Round round,
                                           ClientPauses& evaluation_failures) {
  std::vector<std::string> left_out;
  for (const auto& c : contributions) evaluation_failures.succeeded(c.client);
  for (const auto& f : failures) {
    if (is_circumstance(f.code, protocol::TaskKind::kEvaluate)) continue;
    if (evaluation_failures.failed(f.client, f.reason, round)) left_out.push_back(f.client);
  }
  return left_out;
}

}  // namespace starling::coordinator

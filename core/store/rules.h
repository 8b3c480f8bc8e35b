// SPDX-License-Identifier: Apache-2.0
// What may follow what: the decisions of a store, as functions of the records alone.
// A store only finds, asks here, and writes.
#pragma once

#include <functional>
#include <optional>

#include "core/store/records.h"

namespace starling::store::rules {

// Tokens and certificates.
TokenState token_state_at(const Token& token, WallTime now);
[[nodiscard]] Result<void> may_join(std::string_view name, const std::optional<Client>& holder,
                                    WallTime now);
[[nodiscard]] Result<void> may_create(const Token& token, bool id_known);
[[nodiscard]] Result<void> may_revoke(const Token& token);
// `token` with one more bad try.
Token after_bad_try(Token token, WallTime now);
enum class RedeemStep { kIssue, kRepeat };
[[nodiscard]] Result<RedeemStep> check_redemption(const Token& token,
                                                  const Sha256Digest& csr_sha256, WallTime now);
[[nodiscard]] Result<Certificate> may_return_again(const Token& token,
                                                   const std::optional<Certificate>& issued);
[[nodiscard]] Result<void> may_certify(const Certificate& certificate, bool serial_known,
                                       bool key_revoked);
[[nodiscard]] Result<void> may_renew(std::string_view name, const std::optional<Client>& client);
Error client_unknown(std::string_view name);
Error token_unknown(std::string_view id);

// Runs.
[[nodiscard]] Result<void> same_submission(const Run& run, const NewRun& again);
[[nodiscard]] Result<void> may_start(const Run& run);
[[nodiscard]] Result<void> may_finish(const Run& run, const RunEnd& end);
Error run_unknown(RunId id);
// What an attempt that is open when its run ends, or whose base model is lost, is abandoned for.
Abandonment run_ended(RunState state);
Abandonment base_withdrawn(Round round);

// Rounds.
struct Progress {
  RunState run = RunState::kPending;
  bool attempt_open = false;  // of any kind
  Round last_round = 0;       // committed; 0: the initial model
  Sha256Digest last_model;
  Attempt last_attempt = 0;  // of the next phase of the kind that is asked for
  bool evaluated = false;    // the last round has a committed evaluate phase
};
// The round of the next phase of `kind`: a train phase makes the model after the last committed
// one, an evaluate phase evaluates that one.
Round next_round(PhaseKind kind, Round last_round);
[[nodiscard]] Result<void> may_open(const NewAttempt& attempt, const Progress& progress);
[[nodiscard]] Result<void> may_close(const AttemptKey& key, std::optional<RoundState> state);
using FindTask = std::function<Result<std::optional<TaskRecord>>(TaskId)>;
[[nodiscard]] Result<void> check_contributions(const AttemptKey& key, const AttemptResult& result,
                                               const FindTask& find);
// `result` with NaN as missing.
AttemptResult normalized(AttemptResult result);
Evaluation normalized(Evaluation evaluation);
[[nodiscard]] Result<void> may_withdraw(RunId run, Round round, Round last_round);
Error task_exists(TaskId task);

}  // namespace starling::store::rules

// SPDX-License-Identifier: Apache-2.0
// The coordinator's memory. Every call is one transaction: it happened entirely, or not at all and
// the same call may be made again; it is durable when it returns, except where "Not durable" says
// that a power cut may take the newest ones. Called from one thread (that of the I/O).
// Failures common to all: "disk-full" (kOverloaded: keep state, try again), "database-io-error",
// "fsync-failed" and "database-damaged" (kInternal: stop, a restart recovers).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/store/records.h"

namespace starling::store {

// Signs the request that came with a token, for the token's client. Called inside the transaction
// at most once; it must not write to the store; its failure leaves the token open.
using IssueCertificate = std::function<Result<Certificate>(const Token& token)>;

class Store {
 public:
  virtual ~Store() = default;

  // The federation: "federation-exists", "federation-missing". Facts are words kept for the owner
  // of the key ("join.address", ...).
  [[nodiscard]] virtual Result<void> create_federation(const Federation& federation) = 0;
  [[nodiscard]] virtual Result<Federation> federation() = 0;
  [[nodiscard]] virtual Result<void> set_fact(std::string_view key, std::string_view value) = 0;
  [[nodiscard]] virtual Result<std::optional<std::string>> fact(std::string_view key) = 0;

  // Clients, in order of name. A client is born by redeem_token, or by add_client for the one
  // operator that `init` makes ("client-exists" while its certificate is good).
  [[nodiscard]] virtual Result<void> add_client(std::string_view name, Role role,
                                                const Certificate& certificate, WallTime now) = 0;
  [[nodiscard]] virtual Result<std::optional<Client>> find_client(std::string_view name) = 0;
  [[nodiscard]] virtual Result<std::vector<Client>> clients() = 0;
  // Not durable. `rows`: what the client declares, if it does. "client-unknown".
  [[nodiscard]] virtual Result<void> record_seen(std::string_view name, WallTime now,
                                                 std::optional<std::uint64_t> rows) = 0;
  // When clients were last heard, in one transaction. Not durable. Unknown ones are left out.
  [[nodiscard]] virtual Result<void> record_heard(std::span<const ClientHeard> heard) = 0;
  // Revokes the client, all its certificates and its open tokens; the same again changes nothing.
  // Returns all its revocations, also earlier ones. "client-unknown".
  [[nodiscard]] virtual Result<std::vector<Revocation>> revoke_client(std::string_view name,
                                                                      WallTime now) = 0;

  // A renewal: the certificate becomes its client's newest. "client-unknown", "client-revoked",
  // "certificate-exists" (serial), "key-revoked".
  [[nodiscard]] virtual Result<void> add_certificate(const Certificate& certificate) = 0;
  [[nodiscard]] virtual Result<std::optional<Certificate>> find_certificate(
      std::string_view serial) = 0;
  [[nodiscard]] virtual Result<std::vector<Revocation>> revocations() = 0;

  // Tokens. A new one replaces (revokes) the open ones of the same client, so that a lost command
  // is simply asked for again. For a client whose certificate is still good (not
  // revoked, not expired when the token was created) it is refused ("client-exists"): two devices
  // must never share a name unnoticed; a reset device's old identity is revoked first, and then
  // the name may join again, also with another role.
  // "token-exists".
  [[nodiscard]] virtual Result<void> create_token(const Token& token) = 0;
  // `now` decides what is expired.
  [[nodiscard]] virtual Result<std::optional<Token>> find_token(std::string_view id,
                                                                WallTime now) = 0;
  [[nodiscard]] virtual Result<std::vector<Token>> tokens(WallTime now) = 0;  // oldest first
  // Of an open, locked or expired token; a used one stays used ("token-used": revoke its client).
  [[nodiscard]] virtual Result<void> revoke_token(std::string_view id, WallTime now) = 0;
  // A MAC that did not verify; the Token::kBadTriesMax-th locks an open token. Returns its state.
  [[nodiscard]] virtual Result<TokenState> record_bad_try(std::string_view id, WallTime now) = 0;
  // Requires: the MAC over this request was verified. Uses the token up, makes the client and
  // stores its certificate. The same request again, even after the token's life, returns the same
  // certificate unless it was revoked, so that a lost reply is harmless.
  // "token-unknown", "token-used", "token-revoked", "token-locked", "token-expired",
  // "certificate-revoked", "key-revoked", and those of `issue`.
  [[nodiscard]] virtual Result<Redemption> redeem_token(std::string_view id,
                                                        const Sha256Digest& csr_sha256,
                                                        WallTime now,
                                                        const IssueCertificate& issue) = 0;

  // Runs, in order of id, which is the order of the queue. The same submit token returns the same
  // id, or "submit-token-reused" where name, seed or job differ.
  [[nodiscard]] virtual Result<RunId> submit_run(const NewRun& run, WallTime now) = 0;
  [[nodiscard]] virtual Result<std::optional<Run>> find_run(RunId id) = 0;
  [[nodiscard]] virtual Result<std::vector<Run>> runs() = 0;
  [[nodiscard]] virtual Result<std::vector<Run>> runs(RunState state) = 0;
  // pending -> running, with the initial model (round 0). "run-unknown", "run-state".
  [[nodiscard]] virtual Result<void> start_run(RunId id, const ModelRecord& initial,
                                               WallTime now) = 0;
  // pending -> stopped at once; a running run is asked to; a finished one stays as it is. Returns
  // the state after it.
  [[nodiscard]] virtual Result<RunState> request_stop(RunId id, WallTime now) = 0;
  // pending or running -> `end.state`; an open attempt is abandoned with it. "run-state".
  [[nodiscard]] virtual Result<void> finish_run(RunId id, const RunEnd& end, WallTime now) = 0;

  // Rounds. An attempt is stored when it opens, so that a restart resumes the same cohort and
  // tasks. It must follow the last committed round, bear the next attempt number and start from
  // the last committed model; a run has one open attempt: "round-order", "attempt-open",
  // "run-state", "task-exists".
  [[nodiscard]] virtual Result<void> open_attempt(const NewAttempt& attempt) = 0;
  // Requires: the model's file is durable. Tasks of contributors become committed, the others of
  // this attempt expired. "attempt-closed" where it is not open, "task-mismatch" where a
  // contribution's task is not of this round and client, "weight-range".
  [[nodiscard]] virtual Result<void> commit_attempt(const AttemptKey& key,
                                                    const AttemptResult& result,
                                                    const ModelRecord& model) = 0;
  [[nodiscard]] virtual Result<void> abandon_attempt(const AttemptKey& key,
                                                     const AttemptResult& result,
                                                     const Abandonment& why) = 0;
  // What an open attempt has received and sent so far; of another one nothing is written. Not
  // durable.
  [[nodiscard]] virtual Result<void> record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                                                    std::uint64_t bytes_out) = 0;
  // Where a model is evaluated after its commit. "round-unknown".
  [[nodiscard]] virtual Result<void> record_evaluation(RunId run, Round round,
                                                       const Evaluation& evaluation) = 0;
  // Recovery from a damaged model file: the last committed round, and an open attempt after it,
  // become abandoned, so that the round before is the last. "round-order".
  [[nodiscard]] virtual Result<void> withdraw_round(RunId run, Round round,
                                                    const Abandonment& why) = 0;
  // Every attempt from round `first` on, in order.
  [[nodiscard]] virtual Result<std::vector<RoundRecord>> rounds(RunId run, Round first) = 0;
  [[nodiscard]] virtual Result<std::optional<RoundRecord>> find_open_attempt(RunId run) = 0;
  // The initial and every committed model, in order of round; older files may have been pruned.
  [[nodiscard]] virtual Result<std::vector<ModelRecord>> models(RunId run) = 0;
  [[nodiscard]] virtual Result<std::optional<TaskRecord>> find_task(TaskId id) = 0;
  // What any client may ask at any time: its cost does not grow with the run's history.
  [[nodiscard]] virtual Result<std::optional<TaskEnd>> find_task_end(TaskId id) = 0;

  // The lines of `run log`. Not durable. Reading gives at most `count_max` from `first` on.
  [[nodiscard]] virtual Result<void> append_log(RunId run, std::span<const std::string> lines,
                                                WallTime now) = 0;
  [[nodiscard]] virtual Result<std::vector<LogLine>> log_lines(RunId run, std::uint64_t first,
                                                               std::size_t count_max) = 0;

  // A complete, durable copy in one file (mode 0600) that can be put in the place of starling.db;
  // tokens that are open are revoked in it, and their keys are not there. "backup-unsupported"
  // where there is nothing on disk.
  [[nodiscard]] virtual Result<void> backup_to(const std::filesystem::path& path) = 0;
};

}  // namespace starling::store

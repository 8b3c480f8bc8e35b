// SPDX-License-Identifier: Apache-2.0
// SqliteStore as its sources see it: opening and facts in sqlite_store.cpp, clients and tokens in
// sqlite_clients.cpp, runs and logs in sqlite_runs.cpp, phases in sqlite_phases.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/store/rules.h"
#include "core/store/sqlite_database.h"
#include "core/store/store.h"

namespace starling::store {

// The row of `phases` that tasks, contributions and failures refer to.
using PhaseId = std::int64_t;

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Result<void> create_federation(const Federation& federation) override;
  Result<Federation> federation() override;
  Result<void> set_fact(std::string_view key, std::string_view value) override;
  Result<std::optional<std::string>> fact(std::string_view key) override;

  Result<void> add_client(std::string_view name, Role role, const Certificate& certificate,
                          WallTime now) override;
  Result<std::optional<Client>> find_client(std::string_view name) override;
  Result<std::vector<Client>> clients() override;
  Result<void> record_seen(std::string_view name, WallTime now,
                           const std::optional<Greeting>& greeting) override;
  Result<void> record_heard(std::span<const ClientHeard> heard) override;
  Result<std::vector<Revocation>> revoke_client(std::string_view name, WallTime now) override;
  Result<void> add_certificate(const Certificate& certificate) override;
  Result<std::optional<Certificate>> find_certificate(std::string_view serial) override;
  Result<std::vector<Revocation>> revocations() override;

  Result<void> create_token(const Token& token) override;
  Result<std::optional<Token>> find_token(std::string_view id, WallTime now) override;
  Result<std::vector<Token>> tokens(WallTime now) override;
  Result<void> revoke_token(std::string_view id, WallTime now) override;
  Result<TokenState> record_bad_try(std::string_view id, WallTime now) override;
  Result<Redemption> redeem_token(std::string_view id, const Sha256Digest& csr_sha256, WallTime now,
                                  const IssueCertificate& issue) override;

  Result<RunId> submit_run(const NewRun& run, WallTime now) override;
  Result<std::optional<Run>> find_run(RunId id) override;
  Result<std::vector<Run>> runs() override;
  Result<std::vector<Run>> runs(RunState state) override;
  Result<void> record_initial(RunId id, const Sha256Digest& sha256) override;
  Result<void> start_run(RunId id, const ModelRecord& initial, std::string_view settings,
                         WallTime now) override;
  Result<RunState> request_stop(RunId id, WallTime now) override;
  Result<void> finish_run(RunId id, const RunEnd& end, WallTime now) override;

  Result<void> open_attempt(const NewAttempt& attempt) override;
  Result<void> commit_attempt(const AttemptKey& key, const AttemptResult& result,
                              const ModelRecord& model) override;
  Result<void> commit_evaluation(const AttemptKey& key, const AttemptResult& result) override;
  Result<void> abandon_attempt(const AttemptKey& key, const AttemptResult& result,
                               const Abandonment& why) override;
  Result<void> record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                              std::uint64_t bytes_out) override;
  Result<void> withdraw_round(RunId run, Round round, const Abandonment& why) override;
  Result<std::vector<RoundRecord>> rounds(RunId run, Round first) override;
  Result<std::vector<RoundRecord>> evaluations(RunId run, Round first) override;
  Result<std::optional<RoundRecord>> find_open_attempt(RunId run) override;
  Result<std::vector<ModelRecord>> models(RunId run) override;
  Result<std::optional<ModelRecord>> find_model(RunId run, Round round) override;
  Result<Round> last_round(RunId run) override;
  Result<std::optional<TaskRecord>> find_task(TaskId id) override;
  Result<std::optional<TaskEnd>> find_task_end(TaskId id) override;

  Result<void> append_log(RunId run, std::span<const std::string> lines, WallTime now) override;
  Result<std::vector<LogLine>> log_lines(RunId run, std::uint64_t first,
                                         std::size_t count_max) override;
  Result<std::uint64_t> log_length(RunId run) override;
  Result<void> backup_to(const std::filesystem::path& path) override;

 private:
  // These are parts of the transactions above.
  Result<void> insert_certificate(const Certificate& certificate);
  Result<void> certify(std::string_view name, Role role, const Certificate& certificate,
                       WallTime now);
  Result<void> revoke_open_tokens(std::string_view client);
  Result<Token> token_of(std::string_view id);
  Result<void> update_token(const Token& token);
  Result<Redemption> redeem(std::string_view id, const Sha256Digest& csr_sha256, WallTime now,
                            const IssueCertificate& issue);

  Result<Run> run_of(RunId id);
  Result<void> insert_model(RunId run, const ModelRecord& model);
  // In order of round, with what their evaluations found.
  Result<std::vector<ModelRecord>> models_between(RunId run, Round first, Round last);
  Result<void> end_run(RunId id, const RunEnd& end, WallTime now);

  Result<rules::Progress> progress_of(RunId run, PhaseKind kind);
  Result<std::optional<PhaseId>> open_phase_of(RunId run);
  Result<void> insert_attempt(const NewAttempt& attempt);
  Result<PhaseId> close_attempt(const AttemptKey& key, const AttemptResult& result,
                                RoundState state, const std::optional<Abandonment>& why);
  Result<void> insert_result_rows(PhaseId phase, const AttemptResult& result);
  Result<void> settle_tasks(PhaseId phase, TaskOutcome outcome);
  Result<void> settle_committed(PhaseId phase);
  Result<void> abandon_open_attempt(RunId run, const Abandonment& why);
  Result<void> withdraw_committed(RunId run, PhaseKind kind, Round round, const Abandonment& why);
  Result<std::vector<RoundRecord>> phases(RunId run, PhaseKind kind, Round first);
  Result<RoundRecord> read_phase(Query& query);
  Result<void> read_phase_rows(PhaseId phase, RoundRecord& record);

  std::unique_ptr<Database> database_;
};

}  // namespace starling::store

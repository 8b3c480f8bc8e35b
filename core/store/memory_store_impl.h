// SPDX-License-Identifier: Apache-2.0
// MemoryStore as its two sources see it: clients and tokens in memory_store.cpp, runs and rounds
// in memory_runs.cpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/store/store.h"

namespace starling::store {

// Every call checks everything first and then writes what cannot fail.
class MemoryStore final : public Store {
 public:
  Result<void> create_federation(const Federation& federation) override;
  Result<Federation> federation() override;
  Result<void> set_fact(std::string_view key, std::string_view value) override;
  Result<std::optional<std::string>> fact(std::string_view key) override;

  Result<void> add_client(std::string_view name, Role role, const Certificate& certificate,
                          WallTime now) override;
  Result<std::optional<Client>> find_client(std::string_view name) override;
  Result<std::vector<Client>> clients() override;
  Result<void> record_seen(std::string_view name, WallTime now,
                           std::optional<std::uint64_t> rows) override;
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
  Result<void> start_run(RunId id, const ModelRecord& initial, WallTime now) override;
  Result<RunState> request_stop(RunId id, WallTime now) override;
  Result<void> finish_run(RunId id, const RunEnd& end, WallTime now) override;

  Result<void> open_attempt(const NewAttempt& attempt) override;
  Result<void> commit_attempt(const AttemptKey& key, const AttemptResult& result,
                              const ModelRecord& model) override;
  Result<void> abandon_attempt(const AttemptKey& key, const AttemptResult& result,
                               const Abandonment& why) override;
  Result<void> record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                              std::uint64_t bytes_out) override;
  Result<void> record_evaluation(RunId run, Round round, const Evaluation& evaluation) override;
  Result<void> withdraw_round(RunId run, Round round, const Abandonment& why) override;
  Result<std::vector<RoundRecord>> rounds(RunId run, Round first) override;
  Result<std::optional<RoundRecord>> find_open_attempt(RunId run) override;
  Result<std::vector<ModelRecord>> models(RunId run) override;
  Result<std::optional<TaskRecord>> find_task(TaskId id) override;
  Result<std::optional<TaskEnd>> find_task_end(TaskId id) override;

  Result<void> append_log(RunId run, std::span<const std::string> lines, WallTime now) override;
  Result<std::vector<LogLine>> log_lines(RunId run, std::uint64_t first,
                                         std::size_t count_max) override;
  Result<void> backup_to(const std::filesystem::path& path) override;

 private:
  struct RunHistory {
    Run run;
    std::map<AttemptKey, RoundRecord> attempts;
    std::map<Round, ModelRecord> models;
    std::vector<LogLine> log;
  };

  Result<void> certify(std::string_view name, Role role, const Certificate& certificate,
                       WallTime now);
  Result<void> check_certificate(const Certificate& certificate) const;
  void revoke_open_tokens(std::string_view client);
  Result<Token*> token_of(std::string_view id);
  Result<RunHistory*> history_of(RunId id);
  static RoundRecord* open_attempt_of(RunHistory& history);
  static RoundRecord* committed_attempt_of(RunHistory& history, Round round);
  // The open attempt `key`, once `result` may close it.
  Result<RoundRecord*> closable(const AttemptKey& key, const AttemptResult& result);
  void settle(const RoundRecord& record, TaskOutcome outcome);
  void abandon(RoundRecord& record, const Abandonment& why);
  void end_run(RunHistory& history, const RunEnd& end, WallTime now);

  std::optional<Federation> federation_;
  std::map<std::string, std::string, std::less<>> facts_;
  std::map<std::string, Client, std::less<>> clients_;
  std::map<std::string, Certificate, std::less<>> certificates_;
  std::set<Sha256Digest> revoked_keys_;  // their fingerprints
  std::map<std::string, Token, std::less<>> tokens_;
  std::vector<RunHistory> runs_;  // run i + 1 at i
  std::unordered_map<TaskId, TaskRecord> tasks_;
};

template <class Map, class Key>
auto find_value(const Map& map, const Key& key) -> std::optional<typename Map::mapped_type> {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

}  // namespace starling::store

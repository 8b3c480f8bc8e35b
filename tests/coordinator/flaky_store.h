// SPDX-License-Identifier: Apache-2.0
// A store whose writes fail as a test says: everything goes to the store behind it, but the next
// so many calls of the named kinds.
#pragma once

#include <functional>
#include <memory>

#include "core/store/sqlite_store.h"

namespace starling::testing {

using namespace store;

class FlakyStore final : public Store {
 public:
  // What each of the coming writes of rounds and runs fails with; none: it succeeds.
  std::vector<Error> failures;
  std::vector<std::string> calls;  // of those writes that succeeded, in order
  std::size_t rounds_read = 0;     // records of attempts and models
  // After each of those writes that succeeded.
  std::function<void(const std::string& call)> on_written = [](const std::string&) {};

  Result<void> open_attempt(const NewAttempt& a) override {
    return attempt("open", [&] { return store_->open_attempt(a); });
  }
  Result<void> commit_attempt(const AttemptKey& k, const AttemptResult& r,
                              const ModelRecord& m) override {
    return attempt("commit", [&] { return store_->commit_attempt(k, r, m); });
  }
  Result<void> abandon_attempt(const AttemptKey& k, const AttemptResult& r,
                               const Abandonment& w) override {
    return attempt("abandon", [&] { return store_->abandon_attempt(k, r, w); });
  }
  Result<void> commit_evaluation(const AttemptKey& k, const AttemptResult& r) override {
    return attempt("commit evaluation", [&] { return store_->commit_evaluation(k, r); });
  }
  Result<void> finish_run(RunId id, const RunEnd& end, WallTime now) override {
    return attempt("finish", [&] { return store_->finish_run(id, end, now); });
  }
  Result<void> append_log(RunId run, std::span<const std::string> lines, WallTime now) override {
    for (const std::string& line : lines) calls.push_back("say " + line);
    return store_->append_log(run, lines, now);
  }

  Result<void> create_federation(const Federation& f) override {
    return store_->create_federation(f);
  }
  Result<Federation> federation() override { return store_->federation(); }
  Result<void> set_fact(std::string_view k, std::string_view v) override {
    return store_->set_fact(k, v);
  }
  Result<std::optional<std::string>> fact(std::string_view k) override { return store_->fact(k); }
  Result<void> add_client(std::string_view n, Role r, const Certificate& c, WallTime t) override {
    return store_->add_client(n, r, c, t);
  }
  Result<std::optional<Client>> find_client(std::string_view n) override {
    return store_->find_client(n);
  }
  Result<std::vector<Client>> clients() override { return store_->clients(); }
  Result<void> record_seen(std::string_view n, WallTime t,
                           const std::optional<Greeting>& greeting) override {
    return store_->record_seen(n, t, greeting);
  }
  Result<void> record_heard(std::span<const ClientHeard> heard) override {
    return store_->record_heard(heard);
  }
  Result<std::vector<Revocation>> revoke_client(std::string_view n, WallTime t) override {
    return store_->revoke_client(n, t);
  }
  Result<void> add_certificate(const Certificate& c) override { return store_->add_certificate(c); }
  Result<std::optional<Certificate>> find_certificate(std::string_view s) override {
    return store_->find_certificate(s);
  }
  Result<std::vector<Revocation>> revocations() override { return store_->revocations(); }
  Result<void> create_token(const Token& t) override { return store_->create_token(t); }
  Result<std::optional<Token>> find_token(std::string_view id, WallTime t) override {
    return store_->find_token(id, t);
  }
  Result<std::vector<Token>> tokens(WallTime t) override { return store_->tokens(t); }
  Result<void> revoke_token(std::string_view id, WallTime t) override {
    return store_->revoke_token(id, t);
  }
  Result<TokenState> record_bad_try(std::string_view id, WallTime t) override {
    return store_->record_bad_try(id, t);
  }
  Result<Redemption> redeem_token(std::string_view id, const Sha256Digest& csr, WallTime t,
                                  const IssueCertificate& issue) override {
    return store_->redeem_token(id, csr, t, issue);
  }
  Result<RunId> submit_run(const NewRun& r, WallTime t) override {
    return store_->submit_run(r, t);
  }
  Result<std::optional<Run>> find_run(RunId id) override { return store_->find_run(id); }
  Result<std::vector<Run>> runs() override { return store_->runs(); }
  Result<std::vector<Run>> runs(RunState s) override { return store_->runs(s); }
  Result<void> record_initial(RunId id, const Sha256Digest& sha256) override {
    return attempt("initial", [&] { return store_->record_initial(id, sha256); });
  }
  Result<void> start_run(RunId id, const ModelRecord& m, std::string_view s, WallTime t) override {
    return store_->start_run(id, m, s, t);
  }
  Result<RunState> request_stop(RunId id, WallTime t) override {
    return store_->request_stop(id, t);
  }
  Result<void> record_traffic(const AttemptKey& k, std::uint64_t in, std::uint64_t out) override {
    return store_->record_traffic(k, in, out);
  }
  Result<void> withdraw_round(RunId id, Round r, const Abandonment& w) override {
    return store_->withdraw_round(id, r, w);
  }
  Result<std::vector<RoundRecord>> rounds(RunId id, Round first) override {
    return counted(store_->rounds(id, first));
  }
  Result<std::vector<RoundRecord>> evaluations(RunId id, Round first) override {
    return counted(store_->evaluations(id, first));
  }
  Result<std::optional<RoundRecord>> find_open_attempt(RunId id) override {
    return store_->find_open_attempt(id);
  }
  Result<std::vector<ModelRecord>> models(RunId id) override { return counted(store_->models(id)); }
  Result<std::optional<ModelRecord>> find_model(RunId id, Round r) override {
    ++rounds_read;
    return store_->find_model(id, r);
  }
  Result<Round> last_round(RunId id) override { return store_->last_round(id); }
  Result<std::optional<TaskRecord>> find_task(TaskId id) override { return store_->find_task(id); }
  Result<std::optional<TaskEnd>> find_task_end(TaskId id) override {
    return store_->find_task_end(id);
  }
  Result<std::vector<LogLine>> log_lines(RunId id, std::uint64_t first,
                                         std::size_t count) override {
    return store_->log_lines(id, first, count);
  }
  Result<std::uint64_t> log_length(RunId id) override { return store_->log_length(id); }
  Result<void> backup_to(const std::filesystem::path& p) override { return store_->backup_to(p); }

 private:
  template <class Record>
  Result<std::vector<Record>> counted(Result<std::vector<Record>> records) {
    if (records) rounds_read += records->size();
    return records;
  }
  template <class Write>
  Result<void> attempt(const std::string& name, const Write& write) {
    if (!failures.empty()) {
      const Error error = failures.front();
      failures.erase(failures.begin());
      return error;
    }
    calls.push_back(name);
    Result<void> written = write();
    if (written) on_written(name);
    return written;
  }

  std::unique_ptr<Store> store_ = open_store_in_memory();
};

}  // namespace starling::testing

// SPDX-License-Identifier: Apache-2.0
// Long random lives, with many calls that are out of place: a refused call changes nothing, a
// restart neither, and what a store holds is at all times a possible history.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/store/sim_disk.h"
#include "tests/store/store_fixture.h"
#include "tests/store/store_script.h"

namespace starling::store {
namespace {

// A call and its answer as text, so that all kinds compare alike.
class RandomLife {
 public:
  explicit RandomLife(std::uint64_t seed) : rng_({.seed = seed, .purpose = Purpose::kTest}) {}

  std::uint64_t tasks_max() const { return task_ + 2; }

  std::function<std::string(Store&)> next() {
    ++now_;
    return rng_.below(3) == 0 ? next_of_clients() : next_of_runs();
  }

 private:
  template <class T>
  static std::string word(const Result<T>& result) {
    return result ? "ok" : result.error().code() + ": " + result.error().message();
  }

  std::string name() { return std::string(1, static_cast<char>('a' + rng_.below(4))); }
  std::string id() { return "0" + std::string(1, "0123456789abcdef"[rng_.below(16)]); }

  std::function<std::string(Store&)> next_of_clients() {
    const std::string who = name();
    const std::string what = id();
    const std::string key = "key " + std::to_string(rng_.below(40));
    const WallTime now = at(now_);
    switch (rng_.below(8)) {
      case 0:
        return [=, made = token(what, who, now_, now_ + 40)](Store& s) {
          return word(s.create_token(made));
        };
      case 1:
      case 2:
        return [=, serial = id(), csr = digest(name())](Store& s) {
          const auto result = s.redeem_token(what, csr, now, issuing(serial, key));
          return word(result) + (result ? result->certificate.serial : "");
        };
      case 3:
        return [=](Store& s) {
          const auto state = s.record_bad_try(what, now);
          return word(state) + (state ? std::string(to_string(*state)) : "");
        };
      case 4:
        return [=](Store& s) { return word(s.revoke_token(what, now)); };
      case 5:
        return [=](Store& s) {
          const auto revoked = s.revoke_client(who, now);
          return word(revoked) + (revoked ? std::to_string(revoked->size()) : "");
        };
      case 6:
        return [=](Store& s) { return word(s.add_certificate(certificate(what, who, key))); };
      default:
        return [=](Store& s) { return word(s.record_seen(who, now, std::nullopt)); };
    }
  }

  AttemptResult random_result() {
    AttemptResult result;
    for (std::uint64_t i = rng_.below(3); i > 0; --i) {
      result.contributions.push_back({name(), TaskId(1 + rng_.below(task_)), 1});
    }
    for (std::uint64_t i = rng_.below(2); i > 0; --i) {
      result.failures.push_back({name(), "deadline", "late", rng_.below(9), rng_.below(9)});
    }
    return result;
  }

  // Half of the calls follow what the store says, so that lives get on.
  std::function<std::string(Store&)> next_of_runs() {
    const RunId run(1 + rng_.below(3));
    const WallTime now = at(now_);
    const bool sensible = rng_.below(4) != 0;
    const auto kind = rng_.below(3) == 0 ? PhaseKind::kEvaluate : PhaseKind::kTrain;
    const AttemptKey wild{run, static_cast<Round>(rng_.below(4)),
                          static_cast<Attempt>(1 + rng_.below(3)), kind};
    const std::string made = "model " + std::to_string(now_);
    const Abandonment why{"too-few-updates", made};
    switch (rng_.below(12)) {
      case 0:
        return [=, submit = name()](Store& s) {
          const auto id = s.submit_run({"job", 1, submit, ""}, now);
          return word(id) + (id ? std::to_string(id->value()) : "");
        };
      case 1:
        return [=](Store& s) { return word(s.start_run(run, model(0, made), "", now)); };
      case 2:
        if (rng_.below(20) != 0) break;
        return [=](Store& s) {
          return word(s.finish_run(run, {RunState::kFailed, "x", "y"}, now));
        };
      case 3:
        if (rng_.below(20) != 0) break;
        return [=](Store& s) { return word(s.request_stop(run, now)); };
      case 4:
        return [=](Store& s) {
          const auto models = s.models(run);
          const bool last = sensible && models && !models->empty();
          return word(s.withdraw_round(run, last ? models->back().round : wild.round, why));
        };
      case 5:
      case 6:
        return
            [=](Store& s) { return word(s.append_log(run, std::vector<std::string>{made}, now)); };
      default:
        break;
    }
    if (rng_.below(2) == 0) {
      task_ += 2;
      return [=, first = task_ - rng_.below(3), one = name(), two = name()](Store& s) {
        NewAttempt wish = attempt(run, wild.round, wild.attempt, first, {one, two}, made);
        wish.key.kind = kind;
        return word(s.open_attempt(following(s, std::move(wish), sensible)));
      };
    }
    return [=, wish = random_result(), commits = rng_.below(2) == 0](Store& s) {
      AttemptKey key = wild;
      AttemptResult result = wish;
      const auto open = s.find_open_attempt(run);
      if (sensible && open && *open) {
        key = (**open).key;
        result.contributions.clear();
        for (std::size_t i = 0; i < wish.contributions.size(); ++i) {
          const CohortMember& member = (**open).cohort.at(i);
          result.contributions.push_back({member.client, member.task, 1});
        }
      }
      if (!commits) return word(s.abandon_attempt(key, result, why));
      if (key.kind == PhaseKind::kEvaluate) return word(s.commit_evaluation(key, result));
      return word(s.commit_attempt(key, result, model(key.round, made)));
    };
  }

  static NewAttempt following(Store& store, NewAttempt wish, bool sensible) {
    const auto models = store.models(wish.key.run);
    if (!sensible || !models || models->empty()) return wish;
    const bool trains = wish.key.kind == PhaseKind::kTrain;
    wish.key.round = models->back().round + (trains ? 1 : 0);
    wish.base_model = models->back().sha256;
    wish.key.attempt = 1;
    const auto past = trains ? store.rounds(wish.key.run, wish.key.round)
                             : store.evaluations(wish.key.run, wish.key.round);
    for (const RoundRecord& record : past.value()) {
      if (record.key.round == wish.key.round) wish.key.attempt = record.key.attempt + 1;
    }
    return wish;
  }

  Rng rng_;
  int now_ = 0;
  std::uint64_t task_ = 1;
};

std::string name_of(const RoundRecord& record) {
  return fmt::format("run {}, {} phase of round {}, attempt {}", record.key.run.value(),
                     to_string(record.key.kind), record.key.round, record.key.attempt);
}

// Tasks are open as long as their phase, and committed only by a committed phase.
void check_tasks(const StoreContent& content, const RoundRecord& record,
                 const std::set<TaskId>& committed) {
  for (const CohortMember& member : record.cohort) {
    const auto& task = content.tasks.at(member.task.value() - 1);
    ASSERT_TRUE(task);
    EXPECT_EQ(task->attempt, record.key);
    EXPECT_EQ(task->client, member.client);
    EXPECT_EQ(task->outcome == TaskOutcome::kOpen, record.state == RoundState::kOpen);
    if (record.state == RoundState::kCommitted) {
      const auto same = [&](const Contribution& c) { return c.client == member.client; };
      const bool counted = std::ranges::any_of(record.result.contributions, same);
      EXPECT_EQ(task->outcome, counted ? TaskOutcome::kCommitted : TaskOutcome::kExpired);
    } else if (record.state == RoundState::kAbandoned) {
      EXPECT_EQ(task->outcome, committed.contains(member.task) ? TaskOutcome::kCommitted
                                                               : TaskOutcome::kAbandoned);
    }
  }
}

// The phases of one kind: attempts are counted from 1 without gaps, only the last one may be open,
// and a round has at most one that is committed.
void check_order(std::vector<RoundRecord> records) {
  std::ranges::stable_sort(records, {}, [](const RoundRecord& record) { return record.key.round; });
  Round round = 0;
  Attempt last = 0;
  bool committed = false;
  for (const RoundRecord& record : records) {
    SCOPED_TRACE(name_of(record));
    if (record.key.round != round) {
      round = record.key.round;
      last = 0;
      committed = false;
    }
    EXPECT_EQ(record.key.attempt, ++last);
    EXPECT_FALSE(committed) << "a committed phase is its round's last";
    committed = record.state == RoundState::kCommitted;
    EXPECT_EQ(record.abandonment.has_value(), record.state == RoundState::kAbandoned);
  }
}

void check_run(const StoreContent& content, const Run& run) {
  SCOPED_TRACE("run " + std::to_string(run.id.value()));
  const std::vector<ModelRecord>& models = content.models.at(run.id);
  const std::vector<RoundRecord>& rounds = content.rounds.at(run.id);
  const std::vector<RoundRecord>& evaluations = content.evaluations.at(run.id);
  check_order(rounds);
  check_order(evaluations);
  for (std::size_t i = 0; i < models.size(); ++i) EXPECT_EQ(models[i].round, i);
  std::set<TaskId> committed_tasks;
  std::size_t open = 0, committed = 0;
  for (const auto* records : {&rounds, &evaluations}) {
    for (const RoundRecord& record : *records) {
      open += record.state == RoundState::kOpen ? 1 : 0;
      if (record.state != RoundState::kCommitted) continue;
      for (const Contribution& c : record.result.contributions) committed_tasks.insert(c.task);
    }
  }
  EXPECT_LE(open, run.state == RunState::kRunning ? 1U : 0U);
  for (const RoundRecord& record : rounds) {
    SCOPED_TRACE(name_of(record));
    check_tasks(content, record, committed_tasks);
    if (record.state == RoundState::kAbandoned) continue;
    EXPECT_EQ(record.base_model, models.at(record.key.round - 1).sha256);
    if (record.state != RoundState::kCommitted) continue;
    EXPECT_EQ(record.key.round, ++committed) << "rounds are committed in order";
    EXPECT_EQ(record.model, models.at(record.key.round).sha256);
    EXPECT_EQ(record.result.evaluation, models.at(record.key.round).evaluation);
    const auto evaluates = [&](const RoundRecord& other) {
      return other.key.round == record.key.round && other.state == RoundState::kCommitted;
    };
    const auto found = std::ranges::find_if(evaluations, evaluates);
    const Evaluation found_by_clients =
        found == evaluations.end() ? Evaluation() : found->result.evaluation;
    EXPECT_EQ(models.at(record.key.round).federated, found_by_clients);
  }
  EXPECT_EQ(models.size(), run.started ? committed + 1 : 0);
  for (const RoundRecord& record : evaluations) {
    SCOPED_TRACE(name_of(record));
    check_tasks(content, record, committed_tasks);
    if (record.state == RoundState::kAbandoned) continue;
    EXPECT_EQ(record.base_model, models.at(record.key.round).sha256);
  }
}

void check_clients(const StoreContent& content) {
  std::map<std::string, Certificate> certificates;
  for (const auto& certificate : content.certificates) {
    if (certificate) certificates[certificate->serial] = *certificate;
  }
  std::set<std::string> revoked;
  for (const Revocation& revocation : content.revocations) revoked.insert(revocation.serial);
  for (const Client& client : content.clients) {
    const Certificate& newest = certificates.at(client.certificate_serial);
    EXPECT_EQ(newest.client, client.name);
    EXPECT_EQ(newest.fingerprint, client.certificate_fingerprint);
    EXPECT_EQ(newest.revoked_at.has_value(), client.state == ClientState::kRevoked);
  }
  for (const auto& [serial, certificate] : certificates) {
    EXPECT_EQ(revoked.contains(serial), certificate.revoked_at.has_value());
  }
  for (const Token& token : content.tokens) {
    if (token.state != TokenState::kUsed) continue;
    EXPECT_EQ(certificates.at(token.certificate_serial.value()).client, token.client);
  }
}

TEST(RandomLives, AreAtAllTimesPossibleOnes) {
  const testing::TemporaryDirectory directory;
  std::map<std::string, std::size_t> answers;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimDisk disk;
    const auto open = [&] {
      return open_sqlite_store(directory.path() / "starling.db",
                               {.create = true, .vfs = disk.vfs()});
    };
    auto store = open();
    ASSERT_TRUE(store) << store.error().message();
    RandomLife life(seed);
    StoreContent before = content_of(**store, 1);
    for (int i = 0; i < 200; ++i) {
      SCOPED_TRACE("call " + std::to_string(i));
      const auto call = life.next();
      before = content_of(**store, life.tasks_max());
      const std::string answer = call(**store);
      ++answers[answer.substr(0, answer.find(':'))];
      const StoreContent after = content_of(**store, life.tasks_max());
      if (!answer.starts_with("ok")) {
        ASSERT_EQ(after, before) << answer << " changed something";
      }
      check_clients(after);
      for (const auto& run : after.runs) check_run(after, run);
      if (HasFailure()) return;
    }
    before = content_of(**store, life.tasks_max());
    store = internal("closed", "");
    store = open();
    ASSERT_TRUE(store);
    ASSERT_EQ(content_of(**store, life.tasks_max()), before) << "a restart changed something";
  }
  std::size_t accepted = 0, refused = 0;
  for (const auto& [answer, count] : answers) {
    (answer.starts_with("ok") ? accepted : refused) += count;
  }
  EXPECT_GT(accepted, 500U);
  EXPECT_GT(refused, 500U);
  for (const char* code : {"round-order", "round-evaluated", "attempt-open", "attempt-closed",
                           "task-mismatch", "task-exists", "run-state", "client-exists"}) {
    EXPECT_GT(answers[code], 0U) << code;
  }
}

}  // namespace
}  // namespace starling::store

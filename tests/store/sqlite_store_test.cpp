// SPDX-License-Identifier: Apache-2.0
// What only a database on a real disk can show: locks, foreign files, kills, backups.
#include "core/store/sqlite_store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <fstream>

#include "core/base/durable_file.h"
#include "core/base/rng.h"
#include "core/store/checkpoints.h"
#include "core/store/sqlite_store_impl.h"
#include "tests/store/child_process.h"
#include "tests/store/store_fixture.h"
#include "tests/store/store_script.h"
#include "tests/support/paths.h"

namespace starling::store {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const SqliteStoreOptions kQuick{.create = true, .busy_timeout = std::chrono::milliseconds(0)};

// Runs `sql` on the file beside any Store; returns the first column of the last row.
std::string run_sql(const fs::path& file, const std::string& sql) {
  sqlite3* database = nullptr;
  std::string answer;
  const auto remember = [](void* out, int, char** columns, char**) {
    *static_cast<std::string*>(out) = columns[0] == nullptr ? "" : columns[0];
    return 0;
  };
  char* message = nullptr;
  EXPECT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), remember, &answer, &message), SQLITE_OK) << message;
  sqlite3_free(message);
  sqlite3_close(database);
  return answer;
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  testing::TemporaryDirectory directory_;
  const fs::path file_ = directory_.path() / "starling.db";
};

TEST_F(SqliteStoreTest, IsMadeOnlyWhereAskedFor) {
  EXPECT_EQ(code_of(open_sqlite_store(file_, {})), "database-missing");
  EXPECT_FALSE(fs::exists(file_));
  ASSERT_TRUE(open_sqlite_store(file_, kQuick));
  EXPECT_TRUE(open_sqlite_store(file_, {}));
  EXPECT_NE(code_of(open_sqlite_store(directory_.path() / "no" / "starling.db", kQuick)), "ok");
}

// Any client may ask for any task that it ever had.
TEST_F(SqliteStoreTest, WhatBecameOfATaskCostsTheSameWhateverTheHistory) {
  ASSERT_TRUE(open_sqlite_store(file_, kQuick));
  auto opened = Database::open(file_, std::chrono::milliseconds(0), "");
  ASSERT_TRUE(opened);
  const Database& database = **opened;
  SqliteStore store(std::move(*opened));
  const RunId run = store.submit_run({"job", 1, "", ""}, at(0)).value();
  ASSERT_TRUE(store.start_run(run, model(0, "m0"), "", at(1)));
  const auto steps = [&](std::uint64_t task) {
    const std::uint64_t before = database.steps();
    EXPECT_TRUE(store.find_task_end(TaskId(task)).value());
    return database.steps() - before;
  };
  const auto commit_until = [&](Round last) {
    for (Round round = store.models(run)->back().round + 1; round <= last; ++round) {
      const std::string base = "m" + std::to_string(round - 1);
      ASSERT_TRUE(store.open_attempt(attempt(run, round, 1, 10 * round, {"a", "b"}, base)));
      AttemptResult result;
      result.contributions = {{"a", TaskId(10 * round), 1}};
      ASSERT_TRUE(
          store.commit_attempt({run, round, 1}, result, model(round, "m" + std::to_string(round))));
      if (round > 1) continue;
      ASSERT_TRUE(store.open_attempt(evaluation(run, round, 1, 5, {"a"}, "m1")));
      ASSERT_TRUE(store.commit_evaluation({run, round, 1, PhaseKind::kEvaluate}, {}));
    }
  };
  commit_until(5);
  const std::uint64_t early = steps(10), early_evaluation = steps(5);
  EXPECT_GT(early, 0U);
  commit_until(150);
  EXPECT_LE(steps(10), early + 8) << "the oldest";
  EXPECT_LE(steps(800), early + 8);
  EXPECT_LE(steps(5), early_evaluation + 8) << "of an evaluation";
}

TEST_F(SqliteStoreTest, OnlyItsOwnerReadsIt) {
  const auto store = open_sqlite_store(file_, kQuick);
  ASSERT_TRUE((*store)->set_fact("a", "b"));
  for (const std::string suffix : {"", "-wal"}) {
    struct stat status {};
    ASSERT_EQ(::stat((file_.string() + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 0777, 0600U) << "it holds the keys of tokens";
  }
}

TEST_F(SqliteStoreTest, TwoServicesNeverShareIt) {
  auto first = open_sqlite_store(file_, kQuick);
  ASSERT_TRUE(first);
  const auto second = open_sqlite_store(file_, kQuick);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::kRejected);
  EXPECT_EQ(second.error().code(), "state-in-use");
  EXPECT_THAT(second.error().message(), HasSubstr(file_.string()));
  ASSERT_TRUE((*first)->set_fact("a", "b")) << "the first is not disturbed";
  first = internal("closed", "");
  EXPECT_TRUE(open_sqlite_store(file_, kQuick));
}

TEST_F(SqliteStoreTest, NeitherDoTwoProcesses) {
  ChildProcess holder([&](int pipe) {
    const auto store = open_sqlite_store(file_, kQuick);
    send(pipe, store ? 1 : 0);
    ::pause();
    return 0;
  });
  ASSERT_EQ(holder.read(), 1);
  EXPECT_EQ(code_of(open_sqlite_store(file_, kQuick)), "state-in-use");
  holder.kill_and_wait();
  EXPECT_TRUE(open_sqlite_store(file_, kQuick)) << "a dead service holds nothing";
}

TEST_F(SqliteStoreTest, RefusesANewerSchemaUntouched) {
  ASSERT_TRUE(open_sqlite_store(file_, kQuick));
  run_sql(file_, "PRAGMA user_version=8");
  const Bytes before = read_file(file_, 1 << 24).value();
  const auto store = open_sqlite_store(file_, kQuick);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(store.error().code(), "schema-newer");
  EXPECT_EQ(read_file(file_, 1 << 24).value(), before);
}

// Makes `file` a database as schema version 2 wrote it.
void write_version_2(const fs::path& file) {
  const fs::path dump = testing::source_root() / "tests/store/version_2.sql";
  run_sql(file, read_text_file(dump, 1 << 20).value());
}

TEST_F(SqliteStoreTest, AFileOfTheSecondVersionKeepsItsRuns) {
  write_version_2(file_);
  const auto store = open_sqlite_store(file_, kQuick);
  ASSERT_TRUE(store) << store.error().message();
  const RunId done(1), going_on(2);
  const TaskId high((std::uint64_t{1} << 63) + 1);
  RoundRecord first;
  first.key = {done, 1, 1};
  first.state = RoundState::kAbandoned;
  first.cohort = {{"a", TaskId(1)}, {"b", TaskId(2)}};
  first.base_model = digest("m0");
  first.started = at(10);
  first.result = {.contributions = {{"a", TaskId(1), 600, 0.75}},
                  .failures = {{"b", "deadline", "no update within 60 s", 10, 20}},
                  .train_loss = 0.5,
                  .evaluation = {},
                  .seconds = 1.5,
                  .bytes_in = 100,
                  .bytes_out = 200};
  first.abandonment = Abandonment{"too-few-updates", "1 of 2"};
  RoundRecord second;
  second.key = {done, 1, 2};
  second.state = RoundState::kCommitted;
  second.cohort = {{"b", high}, {"a", TaskId(high.value() + 1)}};
  second.base_model = digest("m0");
  second.started = at(10);
  second.result = {.contributions = {{"a", TaskId(1), 600, 0.75}, {"b", high, 30, std::nullopt}},
                   .failures = {},
                   .train_loss = 0.25,
                   .evaluation = {0.5, 0.875},
                   .seconds = 2,
                   .bytes_in = 5,
                   .bytes_out = 6};
  second.model = digest("m1");
  EXPECT_THAT((*store)->rounds(done, 1).value(), ElementsAre(first, second));
  ModelRecord committed = model(1, "m1");
  committed.evaluation = {0.5, 0.875};
  EXPECT_THAT((*store)->models(done).value(), ElementsAre(model(0, "m0"), committed));
  EXPECT_EQ((*store)->find_task(TaskId(2)).value(),
            (TaskRecord{TaskId(2), first.key, "b", TaskOutcome::kAbandoned}));
  EXPECT_EQ((*store)->find_task_end(high).value(),
            (TaskEnd{{high, second.key, "b", TaskOutcome::kCommitted},
                     RunState::kCompleted,
                     digest("m1"),
                     false}));
  EXPECT_THAT((*store)->log_lines(done, 1, 9).value(),
              ElementsAre(LogLine{1, at(20), "round 1 committed"}));
  const std::vector<Client> clients = (*store)->clients().value();
  ASSERT_EQ(clients.size(), 2U);
  EXPECT_EQ(clients[0].greeting, Greeting{.rows = clients[0].greeting.rows})
      << "what it can do is not known until it is back";
  EXPECT_EQ((*store)->find_run(going_on).value()->settings, "");

  const auto open = (*store)->find_open_attempt(going_on).value();
  ASSERT_TRUE(open) << "the attempt that was open is still resumed";
  EXPECT_EQ(open->key, (AttemptKey{going_on, 1, 1, PhaseKind::kTrain}));
  EXPECT_EQ(open->cohort, (std::vector<CohortMember>{{"a", TaskId(9)}, {"b", TaskId(10)}}));
  EXPECT_EQ(open->result.bytes_out, 900U);
  AttemptResult result;
  result.contributions = {{"a", TaskId(9), 1}};
  ASSERT_TRUE((*store)->commit_attempt(open->key, result, model(1, "m1")));
  ASSERT_TRUE((*store)->open_attempt(evaluation(going_on, 1, 1, 20, {"a"}, "m1")));
}

TEST_F(SqliteStoreTest, TheMigrationLeavesADatabaseLikeANewOne) {
  write_version_2(file_);
  const fs::path fresh = directory_.path() / "fresh.db";
  ASSERT_TRUE(open_sqlite_store(file_, kQuick));
  ASSERT_TRUE(open_sqlite_store(fresh, kQuick));
  EXPECT_EQ(run_sql(file_, "PRAGMA user_version"), "7");
  EXPECT_EQ(run_sql(file_, "PRAGMA foreign_key_check"), "");
  EXPECT_EQ(run_sql(file_, "PRAGMA integrity_check"), "ok");
  const std::string names =
      "SELECT group_concat(name) FROM (SELECT name FROM sqlite_schema ORDER BY name)";
  EXPECT_EQ(run_sql(file_, names), run_sql(fresh, names));
}

// A new certificate is looked for among all clients, since theirs may come after them.
TEST_F(SqliteStoreTest, JoiningDoesNotReadAllClients) {
  ASSERT_TRUE(open_sqlite_store(file_, kQuick));
  EXPECT_EQ(run_sql(file_,
                    "SELECT count(*) FROM pragma_index_list('clients') i "
                    "JOIN pragma_index_info(i.name) c WHERE c.name = 'certificate'"),
            "1");
}

TEST_F(SqliteStoreTest, AFileOfTheFirstVersionKeepsItsRoundsWithoutNorms) {
  write_version_2(file_);
  run_sql(file_, "ALTER TABLE contributions DROP COLUMN norm; PRAGMA user_version=1");
  const auto store = open_sqlite_store(file_, kQuick);
  ASSERT_TRUE(store) << store.error().message();
  const auto rounds = (*store)->rounds(RunId(1), 1).value();
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_EQ(rounds[1].result.contributions[0].norm, std::nullopt);
  EXPECT_EQ(rounds[1].result.contributions[0].weight, 600);
}

TEST_F(SqliteStoreTest, RefusesADatabaseOfAnotherProgramUntouched) {
  run_sql(file_, "CREATE TABLE recipes(name TEXT)");
  const Bytes before = read_file(file_, 1 << 24).value();
  EXPECT_EQ(code_of(open_sqlite_store(file_, kQuick)), "database-foreign");
  EXPECT_EQ(read_file(file_, 1 << 24).value(), before);
}

TEST_F(SqliteStoreTest, NamesDamage) {
  std::ofstream(file_) << std::string(5000, 'x');
  EXPECT_EQ(code_of(open_sqlite_store(file_, kQuick)), "database-damaged");
  fs::remove(file_);
  {
    const auto store = open_sqlite_store(file_, kQuick);
    for (const Step& step : store_script()) ASSERT_TRUE(step.call(**store));
  }
  const auto size = static_cast<std::streamoff>(fs::file_size(file_));
  std::fstream damaged(file_, std::ios::in | std::ios::out | std::ios::binary);
  for (std::streamoff page = 4096; page < size; page += 4096) {
    damaged.seekp(page + 1);
    damaged << std::string(64, '\xff');
  }
  damaged.close();
  const auto store = open_sqlite_store(file_, kQuick);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().kind(), ErrorKind::kInternal);
  EXPECT_EQ(store.error().code(), "database-damaged");
}

TEST_F(SqliteStoreTest, ABackupIsTheStoreAtThatMoment) {
  const auto store = open_sqlite_store(file_, kQuick);
  for (const Step& step : store_script()) ASSERT_TRUE(step.call(**store));
  StoreContent content = content_of(**store, 64);
  const fs::path copy = directory_.path() / "backup" / "starling.db";
  EXPECT_FALSE((*store)->backup_to(copy)) << "the directory is missing";
  fs::create_directory(copy.parent_path());
  std::ofstream(copy) << "an older backup";
  ASSERT_TRUE((*store)->backup_to(copy));
  ASSERT_TRUE((*store)->set_fact("epoch", "later"));
  EXPECT_EQ(std::distance(fs::directory_iterator(copy.parent_path()), {}), 1);
  EXPECT_EQ(run_sql(copy, "PRAGMA integrity_check"), "ok");
  struct stat status {};
  ASSERT_EQ(::stat(copy.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  const auto restored = open_sqlite_store(copy, {});
  ASSERT_TRUE(restored) << restored.error().message();
  for (Token& token : content.tokens) {
    if (token.state == TokenState::kUsed) continue;
    token.mac_key = Bytes(32);
    if (token.state != TokenState::kLocked) token.state = TokenState::kRevoked;
  }
  EXPECT_EQ(content_of(**restored, 64), content);
}

TEST_F(SqliteStoreTest, ABackupHoldsNoKeyOfATokenThatCouldStillBeUsed) {
  const auto store = open_sqlite_store(file_, kQuick);
  ASSERT_TRUE((*store)->create_federation({"kitchen", at(0)}));
  const std::string keys[] = {"the key of the live token 4f2a91",
                              "the key of an expired one: 8d31c"};
  Token live = token("aa", "cam-1", 0, 3600), expired = token("bb", "cam-2", 0, 1);
  live.mac_key = to_bytes(as_bytes(keys[0]));
  expired.mac_key = to_bytes(as_bytes(keys[1]));
  ASSERT_TRUE((*store)->create_token(live));
  ASSERT_TRUE((*store)->create_token(expired));
  const fs::path copy = directory_.path() / "copy.db";
  ASSERT_TRUE((*store)->backup_to(copy));
  const std::string bytes = read_text_file(copy, 1 << 24).value();
  for (const std::string& key : keys) EXPECT_EQ(bytes.find(key), std::string::npos) << key;
  EXPECT_EQ((*store)->find_token("aa", at(1)).value()->mac_key, live.mac_key) << "only the copy's";
  const auto restored = open_sqlite_store(copy, {});
  ASSERT_TRUE(restored) << restored.error().message();
  const auto issue = [](const Token&) -> Result<Certificate> {
    ADD_FAILURE() << "a token of a backup was redeemed";
    return internal("issued", "");
  };
  EXPECT_EQ(code_of((*restored)->redeem_token("aa", sha256(as_bytes("csr")), at(1), issue)),
            "token-revoked");
}

// Commits rounds for ever, each acknowledged on `pipe`; resumes where the directory stands.
class Committer {
 public:
  explicit Committer(const fs::path& directory)
      : store_(open_sqlite_store(directory / "starling.db", {.create = true}).value()),
        checkpoints_(disk_, directory / "models" / "1") {}

  static std::string content(Round round) { return "model " + std::to_string(round); }

  void commit_for_ever(int pipe) {
    if (store_->runs().value().empty()) begin();
    Round round = recover().model.round;
    while (true) {
      commit(++round);
      send(pipe, static_cast<int>(round));
      const auto models = store_->models(RunId(1)).value();
      STARLING_CHECK(checkpoints_.prune(models, 3).has_value());
    }
  }
  Recovery recover() {
    if (store_->runs(RunState::kPending).value().size() == 1) start();
    const auto hash = [](Disk&, const fs::path& file) -> Result<Sha256Digest> {
      STARLING_ASSIGN(const Bytes bytes, read_file(file, 1000));
      return sha256(bytes);
    };
    return recover_run(*store_, checkpoints_, RunId(1), hash).value();
  }
  Store& store() { return *store_; }

 private:
  void begin() {
    STARLING_CHECK(store_->submit_run({"job", 1, "once", ""}, at(0)).has_value());
    start();
  }
  void start() {
    write(0);
    STARLING_CHECK(store_->start_run(RunId(1), model(0, content(0)), "", at(1)).has_value());
  }
  void write(Round round) {
    const std::string text = content(round);
    const SharedBytes parts[] = {{nullptr, as_bytes(text)}};
    STARLING_CHECK(checkpoints_.write(round, parts).has_value());
  }
  void commit(Round round) {
    auto open = store_->find_open_attempt(RunId(1)).value();
    if (!open) {
      const NewAttempt fresh =
          attempt(RunId(1), round, 1, 2 * round, {"a", "b"}, content(round - 1));
      STARLING_CHECK(store_->open_attempt(fresh).has_value());
      open = store_->find_open_attempt(RunId(1)).value();
    }
    write(round);
    AttemptResult result;
    result.contributions = {{"a", TaskId(2 * round), 1}};
    result.failures = {{"b", "deadline", "late", 1, 1}};
    STARLING_CHECK(
        store_->commit_attempt(open->key, result, model(round, content(round))).has_value());
  }

  std::unique_ptr<Store> store_;
  SystemDisk disk_;
  Checkpoints checkpoints_;
};

TEST_F(SqliteStoreTest, AKillLosesNoAcknowledgedRound) {
  Rng rng({.seed = 1, .purpose = Purpose::kTest});
  Round acknowledged = 0;
  for (int kill = 0; kill < 12; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    ChildProcess child([&](int pipe) {
      Committer(directory_.path()).commit_for_ever(pipe);
      return 0;
    });
    for (std::uint64_t acks = rng.below(12); acks > 0; --acks) {
      const int round = child.read();
      ASSERT_GT(round, static_cast<int>(acknowledged));
      acknowledged = static_cast<Round>(round);
    }
    for (std::uint64_t work = rng.below(3'000'000); work > 0; --work) rng.next_u32();
    child.kill_and_wait();
    for (int round = child.read(); round > 0; round = child.read()) {
      acknowledged = static_cast<Round>(round);  // was in the pipe
    }
    if (!fs::exists(file_)) continue;
    EXPECT_EQ(run_sql(file_, "PRAGMA integrity_check"), "ok");
    EXPECT_EQ(run_sql(file_, "PRAGMA foreign_key_check"), "");
    Committer again(directory_.path());
    if (again.store().runs().value().empty()) continue;
    const Recovery recovery = again.recover();
    // A kill between a model's file and its row leaves a file of the next round, that is set aside.
    for (const std::string& complaint : recovery.complaints) {
      EXPECT_THAT(complaint, HasSubstr(fmt::format("set-aside/{}-", recovery.model.round + 1)));
    }
    EXPECT_GE(recovery.model.round, acknowledged);
    EXPECT_LE(recovery.model.round, acknowledged + 1);
    const auto rounds = again.store().rounds(RunId(1), 1).value();
    for (Round round = 1; round <= acknowledged; ++round) {
      ASSERT_EQ(rounds[round - 1].state, RoundState::kCommitted);
      ASSERT_EQ(rounds[round - 1].result.contributions.size(), 1U);
      ASSERT_EQ(rounds[round - 1].model, digest(Committer::content(round)));
    }
    // What was committed just before the kill counts too: the next process goes on from there.
    acknowledged = recovery.model.round;
  }
  EXPECT_GT(acknowledged, 12U);
}

}  // namespace
}  // namespace starling::store

// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_database.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace starling::store {
namespace {

constexpr int kOpenFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;

}  // namespace

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Result<bool> Query::next() {
  if (bind_code_ != SQLITE_OK) return database_->failure(bind_code_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->failure(code);
}

Result<void> Query::run() {
  while (true) {
    STARLING_ASSIGN(const bool more, next());
    if (!more) return {};
  }
}

Error Query::damaged(int column) const {
  return internal("database-damaged",
                  fmt::format("{} holds something impossible in column {} of: {}; restore a backup",
                              database_->file().string(), sqlite3_column_name(statement_, column),
                              sqlite3_sql(statement_)));
}

int Query::bind(int place, std::string_view text) {
  return sqlite3_bind_text64(statement_, place, text.empty() ? "" : text.data(), text.size(),
                             SQLITE_TRANSIENT, SQLITE_UTF8);
}

int Query::bind(int place, ByteView blob) {
  if (blob.empty()) return sqlite3_bind_zeroblob(statement_, place, 0);
  return sqlite3_bind_blob64(statement_, place, blob.data(), blob.size(), SQLITE_TRANSIENT);
}

bool Query::read(int column, std::string& text) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return false;
  const unsigned char* from = sqlite3_column_text(statement_, column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  text.assign(reinterpret_cast<const char*>(from), size);
  return true;
}

bool Query::read(int column, Bytes& blob) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_BLOB) return false;
  const auto* from = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
  blob.assign(from, from + sqlite3_column_bytes(statement_, column));
  return true;
}

bool Query::read(int column, Sha256Digest& digest) const {
  Bytes blob;
  if (!read(column, blob)) return false;
  const Result<Sha256Digest> parsed = Sha256Digest::from_bytes(blob);
  if (parsed) digest = *parsed;
  return parsed.has_value();
}

bool Query::read(int column, double& value) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_FLOAT) return false;
  value = sqlite3_column_double(statement_, column);
  return true;
}

bool Query::read(int column, WallTime& time) const {
  std::int64_t milliseconds = 0;
  const bool good = read(column, milliseconds);
  time = WallTime(std::chrono::milliseconds(milliseconds));
  return good;
}

Result<void> Database::connect(const std::string& name, int flags, const char* vfs) {
  const int code = sqlite3_open_v2(name.c_str(), &connection_, flags, vfs);
  if (code != SQLITE_OK) return failure(code);
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  return {};
}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& file,
                                                 std::chrono::milliseconds busy_timeout,
                                                 const std::string& vfs) {
  std::unique_ptr<Database> database(new Database(file));
  STARLING_TRY(database->connect(std::filesystem::absolute(file).string(), kOpenFlags,
                                 vfs.empty() ? nullptr : vfs.c_str()));
  sqlite3_busy_timeout(database->connection_, static_cast<int>(busy_timeout.count()));
  return database;
}

Result<std::unique_ptr<Database>> Database::open_in_memory() {
  std::unique_ptr<Database> database(new Database("the database in memory"));
  STARLING_TRY(database->connect(":memory:", kOpenFlags | SQLITE_OPEN_MEMORY, nullptr));
  database->in_memory_ = true;
  return database;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  // After a failed write the log is left to the next start to judge.
  if (broken_) sqlite3_db_config(connection_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_close(connection_);
}

Result<sqlite3_stmt*> Database::prepare(std::string_view sql) {
  if (broken_) return *broken_;
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code = sqlite3_prepare_v3(connection_, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return failure(code);
  }
  STARLING_CHECK(!sqlite3_stmt_busy(statement));
  return statement;
}

std::uint64_t Database::steps() const {
  std::uint64_t steps = 0;
  for (const auto& [sql, statement] : statements_) {
    const int taken = sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 0);
    steps += static_cast<std::uint32_t>(taken);
  }
  return steps;
}

Result<void> Database::script(const std::string& sql) {
  if (broken_) return *broken_;
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return failure(code);
  return {};
}

Result<void> Database::begin(Durability durability) {
  STARLING_CHECK(sqlite3_get_autocommit(connection_) != 0);
  if (durability != durability_ && !in_memory_) {
    const bool full = durability == Durability::kFull;
    STARLING_TRY(script(full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
    durability_ = durability;
  }
  return execute("BEGIN IMMEDIATE");
}

Result<void> Database::commit() {
  Result<void> committed = execute("COMMIT");
  if (!committed) roll_back();
  return committed;
}

// Some failures have rolled back already. One of the rollback itself is no second news.
void Database::roll_back() {
  if (sqlite3_get_autocommit(connection_) != 0) return;
  sqlite3_exec(connection_, "ROLLBACK", nullptr, nullptr, nullptr);
}

Error Database::failure(int code) {
  Error error = describe_failure(code, sqlite3_system_errno(connection_));
  const bool lasting = error.code() == "fsync-failed" || error.code() == "database-io-error" ||
                       error.code() == "database-damaged";
  if (lasting) broken_ = error;
  return error;
}

Error Database::describe_failure(int code, int cause) const {
  const std::string where = file_.string();
  const std::string what =
      fmt::format("{} ({}{}{})", sqlite3_errmsg(connection_), sqlite3_errstr(code),
                  cause == 0 ? "" : ", ", cause == 0 ? "" : std::strerror(cause));
  const int kind = code & 0xff;
  const bool io = kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN;
  if (kind == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM) {
    return overloaded("out-of-memory", "no memory left for " + where);
  }
  if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) {
    return internal("fsync-failed", "fsync of " + where + " failed: " + what +
                                        "; what was written may be lost, so this process must "
                                        "stop");
  }
  if (kind == SQLITE_FULL || (io && (cause == ENOSPC || cause == EDQUOT))) {
    return overloaded("disk-full", "no room for " + where + "; free some space");
  }
  if (io && (cause == EMFILE || cause == ENFILE)) {
    return overloaded("too-many-files", "no more files may be open to use " + where);
  }
  if (io) {
    return internal("database-io-error", "cannot read or write " + where + ": " + what +
                                             "; see to the disk and start again");
  }
  switch (kind) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return rejected("state-in-use", where +
                                          " is in use by another process; stop that one, or "
                                          "choose another state directory");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return rejected("no-permission", "cannot write " + where + ": " + what);
    case SQLITE_CONSTRAINT:
      return internal("database-constraint", where + " refused a change: " + what);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return internal("database-damaged",
                      where + " is damaged, or its disk could not be read: " + what +
                          "; try again, and where that does not help, restore a backup");
    default:
      return internal("database-error", where + ": " + what);
  }
}

}  // namespace starling::store

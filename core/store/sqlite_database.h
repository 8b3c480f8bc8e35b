// SPDX-License-Identifier: Apache-2.0
// One connection to SQLite with cached statements, whose failures become Errors. After an I/O
// error or damage every later call fails with the same error: what a failed write or fsync left
// behind is only known after a restart.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <concepts>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "core/store/records.h"
#include "core/store/words.h"

namespace starling::store {

class Database;

// One use of a cached statement, which it gives back when destroyed. Two uses of the same SQL at
// the same time are a bug.
class Query {
 public:
  Query(Database& database, sqlite3_stmt* statement)
      : database_(&database), statement_(statement) {}
  Query(Query&& other) noexcept
      : database_(other.database_),
        statement_(std::exchange(other.statement_, nullptr)),
        bind_code_(other.bind_code_) {}
  Query& operator=(Query&&) = delete;
  ~Query();

  // Moves to the next row; false after the last.
  [[nodiscard]] Result<bool> next();
  // Runs to the end, rows ignored.
  [[nodiscard]] Result<void> run();

  // Reads the columns of this row in order: integers, text, blobs, words, times, ids; an optional
  // takes NULL. "database-damaged" where a value cannot be one of its type.
  template <class... T>
  [[nodiscard]] Result<void> into(T&... values) {
    int column = 0;
    if ((read(column++, values) && ...)) return {};
    return damaged(column - 1);
  }

  template <class... T>
  void bind_all(const T&... values) {
    int place = 1;
    (note(bind(place++, values)), ...);
  }

 private:
  void note(int code) {
    if (bind_code_ == SQLITE_OK) bind_code_ = code;
  }
  Error damaged(int column) const;

  int bind(int place, std::string_view text);
  int bind(int place, ByteView blob);
  int bind(int place, double value) { return sqlite3_bind_double(statement_, place, value); }
  int bind(int place, std::integral auto value) {
    return sqlite3_bind_int64(statement_, place, static_cast<std::int64_t>(value));
  }
  int bind(int place, const Bytes& blob) { return bind(place, ByteView(blob)); }
  int bind(int place, const Sha256Digest& digest) { return bind(place, digest.bytes()); }
  int bind(int place, WallTime time) { return bind(place, time.time_since_epoch().count()); }
  template <class Tag>
  int bind(int place, NumericId<Tag> id) {
    return bind(place, id.value());
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  int bind(int place, Enum value) {
    return bind(place, word_of(value));
  }
  template <class T>
  int bind(int place, const std::optional<T>& value) {
    return value ? bind(place, *value) : sqlite3_bind_null(statement_, place);
  }

  bool read(int column, std::string& text) const;
  bool read(int column, Bytes& blob) const;
  bool read(int column, Sha256Digest& digest) const;
  bool read(int column, double& value) const;
  bool read(int column, WallTime& time) const;
  template <std::integral Integer>
  bool read(int column, Integer& value) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return false;
    value = static_cast<Integer>(sqlite3_column_int64(statement_, column));
    return true;
  }
  template <class Tag>
  bool read(int column, NumericId<Tag>& id) const {
    std::uint64_t value = 0;
    const bool good = read(column, value);
    id = NumericId<Tag>(value);
    return good;
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  bool read(int column, Enum& value) const {
    std::string word;
    if (!read(column, word)) return false;
    const std::optional<Enum> known = from_word<Enum>(word);
    if (known) value = *known;
    return known.has_value();
  }
  template <class T>
  bool read(int column, std::optional<T>& value) const {
    value.reset();
    if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return true;
    return read(column, value.emplace());
  }

  Database* database_;
  sqlite3_stmt* statement_;
  int bind_code_ = SQLITE_OK;
};

// kFull: on the disk when the call returns. kRelaxed: a power cut may take the newest of these.
enum class Durability { kFull, kRelaxed };

class Database {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(
      const std::filesystem::path& file, std::chrono::milliseconds busy_timeout,
      const std::string& vfs);
  // Nothing on disk, and gone with the object.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open_in_memory();
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Requires: `sql` is a literal; it is the key of the cache.
  template <class... Args>
  [[nodiscard]] Result<Query> query(std::string_view sql, const Args&... args) {
    STARLING_ASSIGN(sqlite3_stmt * statement, prepare(sql));
    Query query(*this, statement);
    query.bind_all(args...);
    return query;
  }
  template <class... Args>
  [[nodiscard]] Result<void> execute(std::string_view sql, const Args&... args) {
    STARLING_ASSIGN(Query query, query(sql, args...));
    return query.run();
  }
  // Reads every row by `read`: Result<T>(Query&).
  template <class Read, class... Args>
  [[nodiscard]] auto all(std::string_view sql, Read read, const Args&... args)
      -> Result<std::vector<typename std::invoke_result_t<Read, Query&>::value_type>> {
    STARLING_ASSIGN(Query query, query(sql, args...));
    std::vector<typename std::invoke_result_t<Read, Query&>::value_type> rows;
    while (true) {
      STARLING_ASSIGN(const bool more, query.next());
      if (!more) return rows;
      STARLING_ASSIGN(auto row, read(query));
      rows.push_back(std::move(row));
    }
  }
  // The first row, if there is one.
  template <class Read, class... Args>
  [[nodiscard]] auto first(std::string_view sql, Read read, const Args&... args)
      -> Result<std::optional<typename std::invoke_result_t<Read, Query&>::value_type>> {
    using Row = typename std::invoke_result_t<Read, Query&>::value_type;
    STARLING_ASSIGN(Query query, query(sql, args...));
    STARLING_ASSIGN(const bool found, query.next());
    if (!found) return std::optional<Row>();
    STARLING_ASSIGN(Row row, read(query));
    return std::optional<Row>(std::move(row));
  }

  // Statements without parameters and results.
  [[nodiscard]] Result<void> script(const std::string& sql);

  // Runs `body` (returning a Result) in one transaction: committed if it succeeds, else undone.
  template <class Body>
  auto transact(Durability durability, Body body) -> std::invoke_result_t<Body> {
    STARLING_TRY(begin(durability));
    std::invoke_result_t<Body> result = body();
    if (!result) {
      roll_back();
      return result;
    }
    STARLING_TRY(commit());
    return result;
  }

  // Rows changed by the last statement; the id of the last row inserted.
  int changes() const { return sqlite3_changes(connection_); }
  std::int64_t last_row_id() const { return sqlite3_last_insert_rowid(connection_); }
  const std::filesystem::path& file() const { return file_; }
  // Instructions of SQLite's virtual machine that statements have taken so far.
  std::uint64_t steps() const;

 private:
  friend class Query;
  explicit Database(std::filesystem::path file) : file_(std::move(file)) {}
  Result<void> connect(const std::string& name, int flags, const char* vfs);
  Result<sqlite3_stmt*> prepare(std::string_view sql);
  Result<void> begin(Durability durability);
  Result<void> commit();
  void roll_back();
  // The error for SQLite's `code`; remembered if nothing may follow it.
  Error failure(int code);
  Error describe_failure(int code, int cause) const;

  std::filesystem::path file_;
  sqlite3* connection_ = nullptr;
  std::map<std::string_view, sqlite3_stmt*> statements_;
  bool in_memory_ = false;  // nothing is ever durable
  Durability durability_ = Durability::kFull;
  std::optional<Error> broken_;
};

}  // namespace starling::store

// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_store.h"

#include "core/base/durable_file.h"
#include "core/store/sqlite_schema.h"
#include "core/store/sqlite_store_impl.h"

namespace starling::store {
namespace {

namespace fs = std::filesystem;

// The lock comes first: everything after it sees, and changes, a file that nobody else has open.
constexpr const char* kLock =
    "PRAGMA locking_mode=EXCLUSIVE; PRAGMA mmap_size=0; "
    "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; "
    "PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=ON";
constexpr const char* kWriteAhead =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
    "PRAGMA journal_size_limit=67108864; "
    "BEGIN EXCLUSIVE; COMMIT";

Result<void> ensure_file(const fs::path& file, bool create) {
  std::error_code ignored;
  if (fs::exists(file, ignored)) return {};
  if (create) return write_durably(file, ByteView(), {.secret = true});
  return rejected("database-missing", file.string() +
                                          " does not exist; make a coordinator's "
                                          "directory with: init");
}

// Whoever finds a copy must not be able to join by it: the keys of tokens that were not used are
// overwritten. A used token's key only gives its own device the same certificate again.
Result<void> forget_live_tokens(const fs::path& copy) {
  STARLING_ASSIGN(const auto database, Database::open(copy, std::chrono::milliseconds(0), {}));
  STARLING_TRY(database->script("PRAGMA secure_delete=ON; PRAGMA journal_mode=MEMORY"));
  return database->script(
      "UPDATE tokens SET mac_key = zeroblob(32), "
      "state = CASE state WHEN 'open' THEN 'revoked' ELSE state END WHERE state <> 'used'");
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const fs::path& file,
                                                 const SqliteStoreOptions& options) {
  STARLING_TRY(ensure_file(file, options.create));
  STARLING_ASSIGN(std::unique_ptr<Database> database,
                  Database::open(file, options.busy_timeout, options.vfs));
  STARLING_TRY(database->script(kLock));
  STARLING_TRY(check_origin(*database));
  STARLING_TRY(database->script(kWriteAhead));
  STARLING_TRY(check_structure(*database));
  STARLING_TRY(bring_up_to_date(*database));
  return std::unique_ptr<Store>(std::make_unique<SqliteStore>(std::move(database)));
}

std::unique_ptr<Store> open_store_in_memory() {
  auto database = Database::open_in_memory();
  STARLING_CHECK(database.has_value());
  STARLING_CHECK((*database)->script("PRAGMA foreign_keys=ON").has_value());
  STARLING_CHECK(bring_up_to_date(**database).has_value());
  return std::make_unique<SqliteStore>(*std::move(database));
}

Result<void> SqliteStore::create_federation(const Federation& federation) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_TRY(database_->execute("INSERT INTO federation VALUES(1, ?, ?) ON CONFLICT DO NOTHING",
                                    federation.name, federation.created));
    if (database_->changes() == 1) return {};
    return rejected(
        "federation-exists",
        database_->file().string() + " belongs to a federation already; use another directory");
  });
}

Result<Federation> SqliteStore::federation() {
  const auto read = [](Query& query) -> Result<Federation> {
    Federation federation;
    STARLING_TRY(query.into(federation.name, federation.created));
    return federation;
  };
  STARLING_ASSIGN(auto found, database_->first("SELECT name, created FROM federation", read));
  if (found) return *std::move(found);
  return rejected("federation-missing",
                  database_->file().string() + " holds no federation yet; first: init");
}

Result<void> SqliteStore::set_fact(std::string_view key, std::string_view value) {
  return database_->transact(Durability::kFull, [&] {
    return database_->execute(
        "INSERT INTO facts VALUES(?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", key,
        value);
  });
}

Result<std::optional<std::string>> SqliteStore::fact(std::string_view key) {
  const auto read = [](Query& query) -> Result<std::string> {
    std::string value;
    STARLING_TRY(query.into(value));
    return value;
  };
  return database_->first("SELECT value FROM facts WHERE key = ?", read, key);
}

// VACUUM INTO gives one complete file without a log beside it; it is made durable like any other.
Result<void> SqliteStore::backup_to(const fs::path& path) {
  const auto fill = [&](const fs::path& temporary) -> Result<void> {
    STARLING_TRY(database_->execute("VACUUM INTO ?", temporary.string()));
    return forget_live_tokens(temporary);
  };
  return write_durably_by(path, fill, {.secret = true});
}

}  // namespace starling::store

// SPDX-License-Identifier: Apache-2.0
// The Store of a service: starling.db of a state directory (SQLite, WAL, synchronous=FULL). It is
// locked for as long as it is open, so that two services never share a state directory.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "core/store/store.h"

namespace starling::store {

struct SqliteStoreOptions {
  bool create = false;                           // make the file where it is missing
  std::chrono::milliseconds busy_timeout{1000};  // for a predecessor that is just leaving
  std::string vfs;                               // SQLite's file layer; empty: the default
};

// "database-missing", "state-in-use", "schema-newer" (kUnsupported), "database-foreign" (not
// Starling's), "database-damaged" (its structure is checked).
[[nodiscard]] Result<std::unique_ptr<Store>> open_sqlite_store(const std::filesystem::path& file,
                                                               const SqliteStoreOptions& options);

// The Store of simulations and tests: SQLite in memory, gone with the object.
std::unique_ptr<Store> open_store_in_memory();

}  // namespace starling::store

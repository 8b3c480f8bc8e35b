// SPDX-License-Identifier: Apache-2.0
// The tables of starling.db and how an older file becomes a newer one: one script per version,
// each in its own transaction together with the version that it leads to.
#pragma once

#include "core/store/sqlite_database.h"

namespace starling::store {

inline constexpr int kSchemaVersion = 7;           // PRAGMA user_version
inline constexpr int kApplicationId = 0x5354524C;  // PRAGMA application_id: "STRL"

// Before anything is changed: "schema-newer" (kUnsupported), "database-foreign".
[[nodiscard]] Result<void> check_origin(Database& database);
[[nodiscard]] Result<void> bring_up_to_date(Database& database);
// "database-damaged"
[[nodiscard]] Result<void> check_structure(Database& database);

}  // namespace starling::store

// SPDX-License-Identifier: Apache-2.0
// A TOML document as a flat list of keys with text values: all that the binder needs of toml++,
// which stays in one source file because of its size.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/settings.h"

namespace starling::config {

struct TomlEntry {
  std::string key;  // "section.name"
  std::size_t line = 0;
  std::optional<FieldType> type;  // nothing: a table without keys, a date, a mixed array
  std::string text;               // as Field::set takes it
};

// A table whose keys are not known: all of it is one entry, a JSON object, for the field
// "table.key". Where the table has that key alone, with a text, it is the field's as usual.
struct FreeTable {
  std::string table;  // at the top level
  std::string key;
};

// In the order of their lines. Fails with "toml-malformed" and file:line.
[[nodiscard]] Result<std::vector<TomlEntry>> read_toml_entries(
    std::string_view text, std::string_view file_name,
    const std::vector<FreeTable>& free_tables = {});

}  // namespace starling::config

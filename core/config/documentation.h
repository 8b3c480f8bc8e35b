// SPDX-License-Identifier: Apache-2.0
// The table of keys that a README shows, made from the code and held against it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/settings.h"

namespace starling::config {

struct KeyDocument {
  std::string key;
  std::string default_value;  // as TOML writes it: 5, "60s", [200, 200]
  std::string unit;
  std::string range;
  std::string help;
};

KeyDocument document(const Field& field);

// A Markdown table: key, default, unit, range, meaning.
std::string to_markdown(std::span<const KeyDocument> keys);

// In `markdown` the table stands between the lines "<!-- keys: NAME -->" and "<!-- end -->". Fails
// with "documentation-stale", naming the first line that differs and what it should be.
[[nodiscard]] Result<void> check_documentation(std::span<const KeyDocument> keys,
                                               std::string_view name, std::string_view markdown);

}  // namespace starling::config

// SPDX-License-Identifier: Apache-2.0
// The files that gossip/README.md shows.
#pragma once

#include <string>

#include "core/base/durable_file.h"
#include "tests/support/paths.h"

namespace starling::gossip {

// The block of TOML that begins with `first`.
inline std::string readme_toml(const std::string& first) {
  const std::string readme =
      read_text_file(testing::source_root() / "gossip/README.md", 1 << 20).value();
  const std::string fence = "```toml\n";
  const std::size_t begin = readme.find(fence + first) + fence.size();
  return readme.substr(begin, readme.find("```", begin) - begin);
}

inline std::string readme_network() { return readme_toml("seed = 1\n"); }
inline std::string readme_events() { return readme_toml("[one-comes-back]\n"); }

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace starling::testing {

// Where this tree and what was built of it lie, absolute. Only one file is compiled with these
// paths, so that a compiler cache serves all others in any directory.
std::filesystem::path source_root();
std::filesystem::path build_root();

}  // namespace starling::testing

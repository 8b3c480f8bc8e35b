// SPDX-License-Identifier: Apache-2.0
#include "tests/support/paths.h"

namespace starling::testing {

std::filesystem::path source_root() { return STARLING_SOURCE_DIR; }
std::filesystem::path build_root() { return STARLING_BINARY_DIR; }

}  // namespace starling::testing

// SPDX-License-Identifier: Apache-2.0
// "KEY=VALUE,KEY=VALUE", as data sets, partitions and topologies carry their parameters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/settings.h"

namespace starling {

// Fails with the end of a sentence about the whole text: "has no key 'x'; ...".
[[nodiscard]] Result<void> read_parameters(std::string_view text, const std::vector<Field>& fields);

std::string write_parameters(const std::vector<Field>& fields);

}  // namespace starling

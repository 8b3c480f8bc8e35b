// SPDX-License-Identifier: Apache-2.0
// What a client can do, as words of its greeting, so that a coordinator asks those that can. A
// client of the first version sends none: it knows federated averaging of the built-in models.
#pragma once

#include <string>
#include <vector>

#include "core/strategy/catalogue.h"

namespace starling::client {

inline constexpr const char* kEvaluateAbility = "evaluate";
// Matches columns and classes by the names that a run says.
inline constexpr const char* kNamesAbility = "names";

// The client halves of the strategies, "names", and "evaluate" where rows are held out. Sorted.
std::vector<std::string> abilities_of(const strategy::Catalogue& strategies, bool holds_rows_out);

}  // namespace starling::client

// SPDX-License-Identifier: Apache-2.0
// Whether a page is well-formed: every element closed in order, attributes quoted, nothing but
// known entities. Enough of XML to find text that became markup.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace starling::testing {

// A sentence about the first fault; empty where there is none.
std::string find_fault(std::string_view page);

// The cells' texts of the table with this id, unescaped, its head first.
std::vector<std::vector<std::string>> read_table(std::string_view page, std::string_view id);

// How often `part` stands in `text`.
std::size_t count_of(std::string_view text, std::string_view part);

}  // namespace starling::testing

// SPDX-License-Identifier: Apache-2.0
// What is tried again and again without success, such as a write to a full disk, is logged less and
// less often.
#pragma once

#include <bit>
#include <cstdint>

namespace starling::coordinator {

// Whether the n-th failure in a row is logged: the first four, then each time that their number has
// doubled.
constexpr bool is_logged(std::uint64_t n) { return n <= 4 || std::has_single_bit(n); }

}  // namespace starling::coordinator

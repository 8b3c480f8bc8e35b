// SPDX-License-Identifier: Apache-2.0
// UTF-8 (RFC 3629): what may travel and be stored as text, so that it can stand in JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace starling {

// Control characters and zeros included.
bool is_utf8(std::string_view text);

// At most `bytes_max` bytes of UTF-8: each malformed byte becomes U+FFFD, and a text that is too
// long ends in an ellipsis. Requires: bytes_max >= 3.
std::string clean_sentence(std::string_view text, std::size_t bytes_max);

}  // namespace starling

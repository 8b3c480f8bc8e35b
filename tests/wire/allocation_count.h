// SPDX-License-Identifier: Apache-2.0
// How much memory a piece of code asks for: this program's operator new counts.
#pragma once

#include <cstddef>

namespace starling::testing {

// Bytes that this thread has asked for since the program began; never goes down.
std::size_t bytes_allocated();

}  // namespace starling::testing

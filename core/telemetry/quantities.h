// SPDX-License-Identifier: Apache-2.0
// Amounts as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace starling::telemetry {

std::string format_bytes(std::uint64_t bytes);  // "512 B", "38.4 MB"
std::string format_seconds(double seconds);     // "35 ms", "12.3 s", "3 min 20 s"

}  // namespace starling::telemetry

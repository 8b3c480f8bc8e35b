// SPDX-License-Identifier: Apache-2.0
// Messages with random content within limits.h, from a seeded stream.
#pragma once

#include <string>

#include "core/base/rng.h"
#include "core/wire/frame_type.h"

namespace starling::testing {

// Up to `bytes_max` bytes of UTF-8 with characters of every length, controls and zeros among them.
std::string random_text(Rng& rng, std::size_t bytes_max);

// Every field varies over all that may travel; lists are empty, short or long.
protocol::Message random_message(wire::FrameType type, Rng& rng);

}  // namespace starling::testing

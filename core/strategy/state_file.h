// SPDX-License-Identifier: Apache-2.0
// A strategy's state as a safetensors file: its vectors as tensors in order of name, its scalars in
// the metadata, in a form that keeps every bit.
#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/base/shared_bytes.h"
#include "core/strategy/state.h"

namespace starling::strategy {

// The file in parts: a header, then the values, which stay where the state has them.
// Requires: not null.
std::vector<SharedBytes> encode_state(const StateSnapshot& state);

// "bad-state" for anything that was not encoded so; the errors of parse_safetensors.
[[nodiscard]] Result<StateSnapshot> parse_state(ByteView file);

}  // namespace starling::strategy

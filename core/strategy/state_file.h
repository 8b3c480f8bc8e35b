// SPDX-License-Identifier: Apache-2.0
// A strategy's state as a safetensors file: its vectors as tensors in order of name, its scalars in
// the metadata, in a form that keeps every bit.
#pragma once

#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/strategy/state.h"

namespace starling::strategy {

struct EncodedState {
  Bytes header;
  std::vector<ByteView> values;  // of the state's vectors; valid as long as the state

  // The whole file in parts; valid as long as this object.
  std::vector<ByteView> parts() const;
  std::uint64_t bytes() const;
  Sha256Digest sha256() const;
};

EncodedState encode_state(const State<float>& state);

// "bad-state" for anything that was not encoded so; the errors of parse_safetensors.
[[nodiscard]] Result<State<float>> parse_state(ByteView file);

}  // namespace starling::strategy

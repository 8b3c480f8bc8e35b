// SPDX-License-Identifier: Apache-2.0
// One message of each type with every field set: what the golden frames hold and what the hostile
// tests start from.
#pragma once

#include <string>
#include <vector>

#include "core/protocol/messages.h"

namespace starling::testing {

struct Sample {
  std::string name;  // of its file in golden/
  protocol::Message message;
  bool today = true;  // false: a later sample has what is sent now
};

// The values are those of the golden frames: they do not change.
std::vector<Sample> sample_messages();

}  // namespace starling::testing

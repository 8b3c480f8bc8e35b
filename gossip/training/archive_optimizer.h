// SPDX-License-Identifier: Apache-2.0
// What a node's optimizer remembers, as part of an archive.
#pragma once

#include "core/base/archive.h"
#include "core/train/optimizer.h"

namespace starling::gossip {

inline void archive_optimizer(Archive& state, train::Optimizer& optimizer) {
  auto remembered = optimizer.state();
  if (remembered.steps == 0) remembered = {};  // as load() knows a new one
  state.vector(remembered.first);
  state.vector(remembered.second);
  state(remembered.steps);
  if (state.reading()) state.expect(optimizer.load(remembered).has_value());
}

}  // namespace starling::gossip

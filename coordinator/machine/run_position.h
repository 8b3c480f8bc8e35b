// SPDX-License-Identifier: Apache-2.0
// Where a run stands: after its initial model, or after a committed round.
#pragma once

#include <vector>

#include "core/base/shared_bytes.h"
#include "core/model/parameters.h"
#include "core/protocol/messages.h"
#include "core/strategy/strategy.h"

namespace starling::coordinator {

// A vector that clients are sent beside the model.
struct RoundInput {
  protocol::TaskInput what;
  SharedBytes bytes;
};

// The strategy's state is of the same commit as the model, or its first one after clients lost
// theirs (lost_states.h).
struct RunPosition {
  update::ModelVersion version;
  model::Snapshot model;
  strategy::StateSnapshot state;   // null: the strategy has none
  std::vector<RoundInput> inputs;  // of the next round, out of the state
};

// With this model and state (null: none): hashes what the next round sends of the state.
RunPosition make_position(const strategy::ServerStrategy<float>& strategy,
                          const update::ModelVersion& version, model::Snapshot model,
                          strategy::StateSnapshot state);
// With the strategy's first state.
RunPosition first_position(const strategy::ServerStrategy<float>& strategy,
                           const update::ModelVersion& version, model::Snapshot model);

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/run_position.h"

#include "core/base/digest.h"

namespace starling::coordinator {

RunPosition make_position(const strategy::ServerStrategy<float>& strategy,
                          const update::ModelVersion& version, model::Snapshot model,
                          strategy::StateSnapshot state) {
  RunPosition position{.version = version, .model = std::move(model), .state = {}, .inputs = {}};
  if (state == nullptr || state->empty()) return position;
  position.state = state;
  for (const std::string& name : strategy.sends()) {
    const SharedBytes bytes(state, as_bytes(std::span<const float>(state->vectors.at(name))));
    position.inputs.push_back({{name, sha256(bytes.view()), bytes.size()}, bytes});
  }
  return position;
}

RunPosition first_position(const strategy::ServerStrategy<float>& strategy,
                           const update::ModelVersion& version, model::Snapshot model) {
  auto state =
      std::make_shared<const strategy::State<float>>(strategy.initial_state(model->size()));
  return make_position(strategy, version, std::move(model), std::move(state));
}

}  // namespace starling::coordinator

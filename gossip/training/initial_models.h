// SPDX-License-Identifier: Apache-2.0
// What the nodes of a network with a built-in model begin with: one model, drawn from the seed, or
// models around it (model.initial = "spread=DISTANCE"), each at that distance in a direction of its
// own, uniform on the sphere, drawn from the seed and the node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/model/model_spec.h"
#include "gossip/training/options.h"

namespace starling::gossip {

// The distance; 0 where all begin with the same model. Fails with "setting-invalid".
[[nodiscard]] Result<double> initial_spread(const model::ModelSpec& spec);

// `common`: the model around which they lie. Requires: options that are valid.
std::vector<float> initial_model_of(const NetOptions& options, std::span<const float> common,
                                    std::uint32_t node);

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// What a reduction of all these inputs ends with, to the bit, without its messages.
#pragma once

#include <span>

#include "gossip/collective/reduce_shape.h"

namespace starling::collective {

// `inputs`: of the members in order, each as long as `mean`, which must not overlap them. Requires:
// some input.
void reduced_mean(std::span<const std::span<const float>> inputs, const ShapeRule& rule,
                  std::span<float> mean);

}  // namespace starling::collective

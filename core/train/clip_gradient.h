// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "core/linalg/kernels.h"

namespace starling::train {

// Scales `gradient` to the L2 norm `clip_norm` where it is longer, as
// torch.nn.utils.clip_grad_norm_ does; 0: leaves it alone. False where there is a `clip_norm` and
// the norm is not finite.
[[nodiscard]] bool clip_gradient(std::span<float> gradient, double clip_norm,
                                 const linalg::Kernels& kernels);

}  // namespace starling::train

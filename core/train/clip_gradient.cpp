// SPDX-License-Identifier: Apache-2.0
#include "core/train/clip_gradient.h"

#include <cmath>

namespace starling::train {

bool clip_gradient(std::span<float> gradient, double clip_norm, const linalg::Kernels& kernels) {
  if (clip_norm == 0) return true;
  const double norm = std::sqrt(kernels.squared_norm(gradient.data(), gradient.size()));
  if (!std::isfinite(norm)) return false;
  const double factor = clip_norm / (norm + 1e-6);
  if (factor < 1) kernels.scale(gradient.data(), gradient.size(), static_cast<float>(factor));
  return true;
}

}  // namespace starling::train

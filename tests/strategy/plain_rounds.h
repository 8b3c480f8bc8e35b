// SPDX-License-Identifier: Apache-2.0
// The strategies once more, as the papers write them: in double, over two quadratic clients with
// learning rate 0.1, without any code of core/strategy.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace starling::strategy::plain {

using Vector = std::array<double, 2>;

// x after each of the rounds, from 0. Names as in the catalogue, "scaffold-I" and "scaffold-II",
// and "fednova-momentum" (rho = 0.9), "fednova-proximal" (mu = 0.5).
std::vector<Vector> rounds(const std::string& strategy, int count);

}  // namespace starling::strategy::plain

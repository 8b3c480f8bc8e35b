// SPDX-License-Identifier: Apache-2.0
// The mean of many models and their distance from it, in a fixed order: the same bits for every
// number of threads.
#pragma once

#include <span>
#include <vector>

#include "core/base/compute_pool.h"

namespace starling::gossip {

// out[c] = mean over i of models[i][c], summed in double in the order of i. Requires: models is not
// empty, all of one size.
void mean_of(std::span<const std::span<const float>> models, std::span<float> out,
             ComputePool& pool);

// sqrt((1/n) sum_i ||models[i] - mean||^2) with the mean of the models itself: the Frobenius norm
// of X - Xbar over sqrt(n). Mixing with a symmetric W shrinks it by the second eigenvalue modulus
// at least.
double consensus_distance(std::span<const std::span<const float>> models, ComputePool& pool);

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// What several strategies do alike.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/strategy/strategy.h"

namespace starling::strategy {

// Room for `vectors` vectors of a contribution, [vectors, d], the first one filled with x.
template <class T>
linalg::AlignedVector<T> payload_from(std::span<const T> x, std::size_t vectors) {
  linalg::AlignedVector<T> payload(vectors * x.size());
  std::copy(x.begin(), x.end(), payload.begin());
  return payload;
}

// y <- y - x
template <class T>
void subtract(std::span<T> y, std::span<const T> x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] -= x[i];
}

// Calls update(i, mean) -> the next x[i] for each element i of the report's first vector, and
// stores it. "diverged" where one is not finite.
template <class T, class Update>
[[nodiscard]] Result<void> update_model(std::span<T> model, const aggregate::Report& report,
                                        Update&& update) {
  bool finite = true;
  aggregate::for_each_tile(*report.vectors.at(0),
                           [&](std::size_t begin, std::span<const double> mean) {
                             for (std::size_t j = 0; j < mean.size(); ++j) {
                               const std::size_t i = begin + j;
                               model[i] = static_cast<T>(update(i, mean[j]));
                               finite = finite && std::isfinite(model[i]);
                             }
                           });
  if (finite) return {};
  return rejected("diverged", "the next model is not finite; use a smaller learning rate");
}

}  // namespace starling::strategy

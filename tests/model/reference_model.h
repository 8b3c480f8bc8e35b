// SPDX-License-Identifier: Apache-2.0
// A network as plain loops in double, from the names and shapes of its tensors: the measure for the
// float kernels. Knows nothing of the library but the layout.
#pragma once

#include <span>
#include <vector>

#include "core/data/dataset.h"
#include "core/model/parameters.h"

namespace starling::model {

class ReferenceModel {
 public:
  ReferenceModel(const Layout& layout, data::Shape input) : layout_(layout), input_(input) {}

  std::vector<double> logits(std::span<const double> parameters, const float* features) const;
  // The cross-entropy of one row.
  double loss(std::span<const double> parameters, const float* features, std::int32_t label) const;
  // d/dp of the mean loss of `rows` rows, by central differences.
  std::vector<double> gradient(std::span<const double> parameters, const float* features,
                               const std::int32_t* labels, std::size_t rows) const;

 private:
  const Layout& layout_;
  data::Shape input_;
};

}  // namespace starling::model

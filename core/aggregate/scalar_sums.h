// SPDX-License-Identifier: Apache-2.0
// What every rule knows of the updates beside their vectors: how many there are, their weights, and
// the weighted means of their scalars, by exact sums.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/aggregate/aggregator.h"
#include "core/linalg/sum.h"

namespace starling::aggregate {

struct ScalarSums {
  struct Sum {
    linalg::ExactSum weighted;
    linalg::ExactSum weight;  // of those who sent the scalar
  };

  // Of the scalars of these names; others that a contribution brings are not looked at.
  explicit ScalarSums(const std::vector<std::string>& names);

  void add(const update::ContributionHead& head);
  // All of the report but its vectors.
  Report report() const;

  std::map<std::string, Sum> scalars;
  linalg::ExactSum weight;
  std::uint32_t contributions = 0;
};

}  // namespace starling::aggregate

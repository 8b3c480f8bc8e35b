// SPDX-License-Identifier: Apache-2.0
// Columns of different scales made alike: from each value of a column its offset is subtracted, and
// the rest is divided by its divisor, in float32, so that NumPy repeats it to the bit.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace starling::data {

class Dataset;

struct Scaling {
  std::vector<float> offsets;   // [features]; empty: values stay as they are
  std::vector<float> divisors;  // [features], above 0

  bool enabled() const { return !offsets.empty(); }
  friend bool operator==(const Scaling&, const Scaling&) = default;
};

// The mean and the standard deviation (of the population) of each column over all rows, computed in
// float64. The divisor of a column that is constant is 1. O(rows x features), two passes.
Scaling standard_scaling(const Dataset& dataset);
// The minimum, and the maximum less the minimum.
Scaling minmax_scaling(const Dataset& dataset);

// Whether the rows may be scaled so, after their columns have moved if `reordered`: "scale-not-csv"
// where columns have no names, as those of images; "scale-differs" where there are more or fewer,
// or where the rows are scaled already with other numbers.
[[nodiscard]] Result<void> check_scaling(const Dataset& dataset, const Scaling& scaling,
                                         bool reordered);

// "not-finite" where float32 cannot hold a value that is scaled, with the column as `names` has it,
// and no value. Requires: as many features as `scaling` has.
[[nodiscard]] Result<void> scale_rows(std::vector<float>& features,
                                      const std::vector<std::string>& names,
                                      const Scaling& scaling);

}  // namespace starling::data

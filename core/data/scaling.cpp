// SPDX-License-Identifier: Apache-2.0
#include "core/data/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/data/dataset.h"

namespace starling::data {
namespace {

// A column that is constant but for the rounding of float32 is not stretched. `largest`: of its
// values, by magnitude, or their mean.
float divisor_of(double spread, double largest) {
  constexpr double kRounding = 10 * std::numeric_limits<float>::epsilon();
  if (spread <= kRounding * std::abs(largest)) return 1;
  const auto divisor =
      static_cast<float>(std::min<double>(spread, std::numeric_limits<float>::max()));
  return divisor > 0 ? divisor : 1;
}

// Calls visit(column, value) for each value, row by row.
template <class Visit>
void for_each_value(const Dataset& dataset, Visit visit) {
  const std::size_t columns = dataset.shape().features();
  for (std::size_t row = 0; row < dataset.rows(); ++row) {
    const auto values = dataset.row(row);
    for (std::size_t c = 0; c < columns; ++c) visit(c, static_cast<double>(values[c]));
  }
}

}  // namespace

Scaling standard_scaling(const Dataset& dataset) {
  const std::size_t columns = dataset.shape().features();
  const auto rows = static_cast<double>(dataset.rows());
  std::vector<double> means(columns);
  for_each_value(dataset, [&](std::size_t c, double value) { means[c] += value; });
  for (double& mean : means) mean /= rows;
  std::vector<double> squares(columns);
  for_each_value(dataset, [&](std::size_t c, double value) {
    squares[c] += (value - means[c]) * (value - means[c]);
  });
  Scaling scaling;
  for (std::size_t c = 0; c < columns; ++c) {
    scaling.offsets.push_back(static_cast<float>(means[c]));
    scaling.divisors.push_back(divisor_of(std::sqrt(squares[c] / rows), means[c]));
  }
  return scaling;
}

Scaling minmax_scaling(const Dataset& dataset) {
  const std::size_t columns = dataset.shape().features();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> lowest(columns, kInfinity);
  std::vector<double> highest(columns, -kInfinity);
  for_each_value(dataset, [&](std::size_t c, double value) {
    lowest[c] = std::min(lowest[c], value);
    highest[c] = std::max(highest[c], value);
  });
  Scaling scaling;
  for (std::size_t c = 0; c < columns; ++c) {
    scaling.offsets.push_back(static_cast<float>(lowest[c]));
    scaling.divisors.push_back(
        divisor_of(highest[c] - lowest[c], std::max(-lowest[c], highest[c])));
  }
  return scaling;
}

Result<void> check_scaling(const Dataset& dataset, const Scaling& scaling, bool reordered) {
  const bool is_scaled = dataset.scaling().enabled();
  if (dataset.scaling() == scaling && !(is_scaled && reordered)) return {};
  if (is_scaled) {
    return unsupported("scale-differs", "the rows are scaled already, with other numbers");
  }
  if (dataset.feature_names().empty()) {
    return unsupported("scale-not-csv",
                       "the run scales the columns of csv files (data.scale), and the data are of "
                       "another kind; images are scaled as they are read");
  }
  const std::size_t columns = dataset.shape().features();
  if (columns == scaling.offsets.size()) return {};
  return unsupported("scale-differs", "the run scales " +
                                          counted(scaling.offsets.size(), "column") +
                                          ", and the data have " + std::to_string(columns));
}

Result<void> scale_rows(std::vector<float>& features, const std::vector<std::string>& names,
                        const Scaling& scaling) {
  const std::size_t columns = scaling.offsets.size();
  for (std::size_t at = 0; at < features.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) {
      float& value = features[at + c];
      value = (value - scaling.offsets[c]) / scaling.divisors[c];
      if (std::isfinite(value)) continue;
      const std::string column =
          names.empty() ? std::to_string(c + 1) : "'" + printable(names[c]) + "'";
      return unsupported(
          "not-finite", "float32 cannot hold what data.scale makes of a value in column " + column +
                            " of the data: its divisor is too small");
    }
  }
  return {};
}

}  // namespace starling::data

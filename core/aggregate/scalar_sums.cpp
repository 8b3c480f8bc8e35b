// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/scalar_sums.h"

namespace starling::aggregate {

ScalarSums::ScalarSums(const std::vector<std::string>& names) {
  for (const std::string& name : names) scalars[name];
}

void ScalarSums::add(const update::ContributionHead& head) {
  weight.add(head.weight);
  for (auto& [name, sum] : scalars) {
    const auto given = head.scalars.find(name);
    if (given == head.scalars.end()) continue;
    sum.weighted.add(head.weight * given->second);
    sum.weight.add(head.weight);
  }
  ++contributions;
}

Report ScalarSums::report() const {
  Report report;
  report.weight = weight.value();
  report.contributions = contributions;
  for (const auto& [name, sum] : scalars) {
    const double divisor = sum.weight.value();
    if (divisor > 0) report.scalars[name] = sum.weighted.value() / divisor;
  }
  return report;
}

}  // namespace starling::aggregate

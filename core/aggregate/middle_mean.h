// SPDX-License-Identifier: Apache-2.0
// The coordinate-wise median and trimmed mean (Yin et al., "Byzantine-robust distributed learning:
// towards optimal statistical rates", ICML 2018). With x_(1) <= ... <= x_(n) the values of one
// element in the n updates, the rule drops the f lowest and the f highest:
//   (x_(f+1) + ... + x_(n-f)) / (n - 2f)
// The trimmed mean has a given f, with n > 2f; the median has f = floor((n - 1) / 2), so that of an
// even number it is the mean of the two in the middle. Both are unweighted: one cannot check what a
// client says it weighs.
#pragma once

#include <optional>

#include "core/aggregate/joint_rule.h"

namespace starling::aggregate {

class MiddleMean final : public JointRule {
 public:
  static MiddleMean median() { return MiddleMean(std::nullopt); }
  static MiddleMean trimmed(std::size_t drop) { return MiddleMean(drop); }

  std::size_t updates_min() const override { return 2 * drop_.value_or(0) + 1; }
  [[nodiscard]] Result<Report> report(const update::Schema& schema,
                                      const update::UpdateSource& updates) const override;
  double combine(std::vector<double> values) const override;

 private:
  // Of so many values.
  std::size_t dropped(std::size_t values) const { return drop_.value_or((values - 1) / 2); }
  explicit MiddleMean(std::optional<std::size_t> drop) : drop_(drop) {}

  std::optional<std::size_t> drop_;  // f; none: the median's
};

}  // namespace starling::aggregate

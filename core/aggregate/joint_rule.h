// SPDX-License-Identifier: Apache-2.0
// An aggregation rule that needs all updates at once, as those against dishonest clients do; one
// that needs no more than a sum is an Aggregator (aggregator.h). Memory beside the report: a tile
// of every update. Disk or memory of the spool: every update whole, until the phase ends.
#pragma once

#include <cstddef>

#include "core/aggregate/aggregator.h"
#include "core/update/update_source.h"

namespace starling::aggregate {

class JointRule {
 public:
  virtual ~JointRule() = default;
  // The fewest updates that the rule is defined for.
  virtual std::size_t updates_min() const = 0;
  // Scalars are weighted means by exact sums, as those of any report. "too-few-updates" below
  // updates_min(); the errors of UpdateSource::read. Requires: the updates were validated against
  // the schema.
  [[nodiscard]] virtual Result<Report> report(const update::Schema& schema,
                                              const update::UpdateSource& updates) const = 0;
  // The rule for one number of each update, where a scalar is what the updates are about. Does not
  // depend on the order. Requires: at least updates_min() finite values.
  virtual double combine(std::vector<double> values) const = 0;
};

}  // namespace starling::aggregate

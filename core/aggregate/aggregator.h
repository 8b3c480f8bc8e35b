// SPDX-License-Identifier: Apache-2.0
// The algebra of an aggregation rule: accumulate, merge, can_report, report. An aggregate in
// progress is a value: it can be stored, sent to another machine and merged there, with the same
// bits.
#pragma once

#include "core/aggregate/report.h"
#include "core/base/error.h"
#include "core/update/contribution.h"

namespace starling::aggregate {

class Aggregator {
 public:
  virtual ~Aggregator() = default;

  // Requires: validated against this aggregator's schema. "too-many-contributions" beyond the
  // bound.
  [[nodiscard]] virtual Result<void> accumulate(const update::Contribution& contribution) = 0;
  // Adds what `serialized` (of the same rule and schema) has seen.
  [[nodiscard]] virtual Result<void> merge(ByteView serialized) = 0;
  virtual Bytes serialize() = 0;
  virtual bool can_report() const = 0;
  // Ends the aggregation. Requires: can_report().
  virtual Report report() && = 0;
};

}  // namespace starling::aggregate

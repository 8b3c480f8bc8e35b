// SPDX-License-Identifier: Apache-2.0
// The names of what rows hold, by which a file fits the run that it is used for whatever the order
// of its columns and whichever classes it has, or is refused by name; and how the run scales them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/data/dataset.h"
#include "core/data/scaling.h"

namespace starling::data {

struct RowNames {
  std::vector<std::string> columns;  // of the features, in the model's order; empty: not said
  std::vector<std::string> classes;  // class i is written so; empty: labels are numbers
  Scaling scaling = {};              // of the features, in the model's order
  friend bool operator==(const RowNames&, const RowNames&) = default;
};

// As `dataset` has them.
RowNames names_of(const Dataset& dataset);

// What an error calls the rows and the run that they do not fit. The coordinator reads a device's
// errors: they say the run's names alone, never those of the device's file.
struct NamedAs {
  std::string data = "the data";
  std::string run = "the run";
  bool is_private = true;
  bool run_is_job = false;  // there are no rows beside a job, which need not say what labels mean
};

// Whether `dataset` is as the names have it, or has none of its own, and is scaled so. The errors
// of fit_to, but for "not-finite".
[[nodiscard]] Result<bool> fits(const Dataset& dataset, const RowNames& names,
                                const NamedAs& as = {});

// `dataset` with its columns in the order of `names`, its classes numbered by it, and then scaled;
// itself where it is so already or has no names of its own. Changed in place if this is the last
// reference, else the features are copied. "columns-differ", "unknown-class", "text-labels" and
// those of check_scaling (kUnsupported: another attempt ends alike), and then `dataset` is as
// before; "not-finite" of scale_rows, and then it is null. O(rows x features).
[[nodiscard]] Result<void> fit_to(std::shared_ptr<const Dataset>& dataset, const RowNames& names,
                                  const NamedAs& as = {});

}  // namespace starling::data

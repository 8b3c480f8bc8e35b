// SPDX-License-Identifier: Apache-2.0
// The rows of one client that it never trains on, so that models can be evaluated on them.
#pragma once

#include <optional>
#include <vector>

#include "core/data/dataset.h"

namespace starling::data {

// The part of the rows that simulations hold out by default.
inline constexpr double kHoldOut = 0.2;

struct Divided {
  DatasetView training;
  std::optional<DatasetView> held_out;
};

// Holds floor(fraction * rows) rows out, drawn by their positions in the view alone: a device and a
// simulation that hold the same rows in the same order divide them alike. None where that is less
// than a row. Requires: 0 <= fraction < 1.
Divided hold_out(const DatasetView& view, double fraction);

// The rows of all these views, in the order of their common data set; none where there are none.
std::optional<DatasetView> pooled(const std::vector<DatasetView>& views);

}  // namespace starling::data

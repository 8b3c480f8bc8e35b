// SPDX-License-Identifier: Apache-2.0
// What tells data sets and parts of them apart, for the identity of a computation on them.
#pragma once

#include "core/base/digest.h"
#include "core/data/dataset.h"

namespace starling::data {

// The values of all rows of the data set, and which rows the view has. Nothing of a view of none.
void add_dataset(Sha256& identity, const DatasetView& view);
void add_rows(Sha256& identity, const DatasetView& view);

}  // namespace starling::data

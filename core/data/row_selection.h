// SPDX-License-Identifier: Apache-2.0
// What the readers share: limits before memory is taken, the number of classes, and the choice of
// rows from their labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/data/load.h"

namespace starling::data {

// "dataset-too-large" (or "dataset-malformed" for none at all) beyond options.rows_max.
[[nodiscard]] Result<void> check_rows(const std::string& name, std::uint64_t rows,
                                      const LoadOptions& options);
// "dataset-too-large" where rows * features * bytes_each exceeds options.bytes_max.
[[nodiscard]] Result<void> check_bytes(const std::string& name, std::uint64_t rows,
                                       std::uint64_t features, std::uint64_t bytes_each,
                                       const LoadOptions& options);

// Sets content.classes from its labels or from options.classes, which bounds them.
[[nodiscard]] Result<void> count_classes(const std::string& name, Dataset::Content& content,
                                         const LoadOptions& options);

// The rows that options.select wants of the labels and groups in `content`, or all of them.
// Requires of the selector: ascending row numbers of the data set.
[[nodiscard]] Result<std::vector<std::uint32_t>> choose_rows(const Dataset::Content& content,
                                                             const LoadOptions& options);
// Leaves only these rows' labels and groups.
void keep_rows(Dataset::Content& content, const std::vector<std::uint32_t>& chosen);

}  // namespace starling::data

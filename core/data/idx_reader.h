// SPDX-License-Identifier: Apache-2.0
// The IDX files of the MNIST family (Y. LeCun, "The MNIST database"): big-endian header, then
// unsigned bytes. Images [n, height, width] become floats x / 255, labels [n] become classes.
#pragma once

#include <filesystem>

#include "core/data/load.h"

namespace starling::data {

// "train-images-idx3-ubyte" and "train-labels-idx1-ubyte" in `directory` ("t10k-..." of the test
// split), each plain or with ".gz".
[[nodiscard]] Result<Dataset::Content> read_idx(const std::filesystem::path& directory, Split split,
                                                const LoadOptions& options);

// Whether there is a file of this split.
bool has_idx(const std::filesystem::path& directory, Split split);

}  // namespace starling::data

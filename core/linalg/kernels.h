// SPDX-License-Identifier: Apache-2.0
// Which kernels this processor runs, chosen once at run time. Every element of a result is computed
// in one order, whatever its neighbours, the sizes or other threads; between instruction sets the
// last bits differ (FMA, lanes).
#pragma once

#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/linalg/kernel_table.h"

namespace starling::linalg {

// The sets that this processor can run, the best first.
std::vector<const Kernels*> available_kernels();
// "v2", "v3", "v4", or "" for the best; "unknown-isa" or "unsupported-isa" otherwise.
[[nodiscard]] Result<const Kernels*> find_kernels(std::string_view name);
// What STARLING_ISA in the environment says at the first call, else the best.
const Kernels& default_kernels();

}  // namespace starling::linalg

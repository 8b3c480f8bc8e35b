// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64-v3; CMakeLists.txt sets the flags.
#define STARLING_ISA v3
#include "core/linalg/kernels/kernel_set.h"

namespace starling::linalg::v3 {

extern const Kernels kKernels;
const Kernels kKernels = make_kernels();

}  // namespace starling::linalg::v3

// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64-v2; CMakeLists.txt sets the flags.
#define STARLING_ISA v2
#include "core/linalg/kernels/kernel_set.h"

namespace starling::linalg::v2 {

extern const Kernels kKernels;
const Kernels kKernels = make_kernels();

}  // namespace starling::linalg::v2

// SPDX-License-Identifier: Apache-2.0
// The kernels for any processor but x86-64 (NEON where it is there); CMakeLists.txt sets the flags.
#define STARLING_ISA generic
#include "core/linalg/kernels/kernel_set.h"

namespace starling::linalg::generic {

extern const Kernels kKernels;
const Kernels kKernels = make_kernels();

}  // namespace starling::linalg::generic

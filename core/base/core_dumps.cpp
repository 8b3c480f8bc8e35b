// SPDX-License-Identifier: Apache-2.0
#include "core/base/core_dumps.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include "core/base/sanitizers.h"

namespace starling {
void forbid_core_dumps() {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (!kSanitized) ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

}  // namespace starling

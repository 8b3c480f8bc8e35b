// SPDX-License-Identifier: Apache-2.0
#include "core/net/processor.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace starling::net {

bool has_aes_instructions() {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_cpu_supports("aes") != 0;
#elif defined(__aarch64__) && defined(__linux__)
  return (::getauxval(AT_HWCAP) & HWCAP_AES) != 0;
#else
  return false;
#endif
}

}  // namespace starling::net

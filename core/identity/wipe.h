// SPDX-License-Identifier: Apache-2.0
// Overwrites key material that is no longer needed, which compilers would leave out.
#pragma once

#include "core/base/bytes.h"

namespace starling::identity {

void wipe(MutableByteView secret);

// Wipes bytes that it does not own at the end of a scope, by whatever way that is left.
class WipeAtEnd {
 public:
  explicit WipeAtEnd(MutableByteView secret) : secret_(secret) {}
  ~WipeAtEnd() { wipe(secret_); }
  WipeAtEnd(const WipeAtEnd&) = delete;
  WipeAtEnd& operator=(const WipeAtEnd&) = delete;

 private:
  MutableByteView secret_;
};

}  // namespace starling::identity

// SPDX-License-Identifier: Apache-2.0
#include "core/identity/wipe.h"

#include <openssl/crypto.h>

namespace starling::identity {

void wipe(MutableByteView secret) { OPENSSL_cleanse(secret.data(), secret.size()); }

}  // namespace starling::identity

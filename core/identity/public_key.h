// SPDX-License-Identifier: Apache-2.0
// What is asked of every public key here. For sources of this folder only.
#pragma once

#include "core/base/digest.h"

struct evp_pkey_st;

namespace starling::identity {

// A point on P-256 given by the curve's name, not by parameters of the sender's choice.
bool is_p256(const evp_pkey_st& key);

// SHA-256 over the SubjectPublicKeyInfo.
Sha256Digest spki_digest(const evp_pkey_st& key);

}  // namespace starling::identity

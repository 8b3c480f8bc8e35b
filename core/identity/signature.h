// SPDX-License-Identifier: Apache-2.0
// ECDSA P-256 over SHA-256 for what is passed on beyond a connection. What is signed must begin
// with words that nothing else signed by the same key begins with.
#pragma once

#include <array>

#include "core/base/bytes.h"
#include "core/identity/certificate.h"

namespace starling::identity {

using Signature = std::array<std::byte, 64>;  // r and s, 32 bytes each, big-endian

Signature sign(const PrivateKey& key, ByteView message);

// Whether the holder of the certificate's key signed `message`; the key must be P-256.
bool is_signed_by(const Certificate& certificate, ByteView message, const Signature& signature);

}  // namespace starling::identity

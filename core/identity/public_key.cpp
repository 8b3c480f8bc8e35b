// SPDX-License-Identifier: Apache-2.0
#include "core/identity/public_key.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/x509.h>

#include <array>

#include "core/base/check.h"
#include "core/identity/openssl_handles.h"

namespace starling::identity {

bool is_p256(const EVP_PKEY& key) {
  if (EVP_PKEY_get_base_id(&key) != EVP_PKEY_EC) return false;
  std::array<char, 64> group{};
  std::size_t length = 0;
  const int found = EVP_PKEY_get_group_name(&key, group.data(), group.size(), &length);
  clear_openssl_errors();
  return found == 1 && std::string_view(group.data(), length) == SN_X9_62_prime256v1;
}

Sha256Digest spki_digest(const EVP_PKEY& key) {
  Bytes der(static_cast<std::size_t>(i2d_PUBKEY(&key, nullptr)));
  unsigned char* end = uchars(der.data());
  STARLING_CHECK(i2d_PUBKEY(&key, &end) > 0);
  return sha256(der);
}

}  // namespace starling::identity

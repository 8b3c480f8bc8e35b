// SPDX-License-Identifier: Apache-2.0
#include "core/identity/private_key.h"

#include <openssl/ec.h>
#include <openssl/pem.h>

#include "core/base/check.h"
#include "core/base/durable_file.h"
#include "core/identity/openssl_handles.h"
#include "core/identity/public_key.h"
#include "core/identity/wipe.h"

namespace starling::identity {
namespace {

constexpr std::size_t kKeyPemBytesMax = 16 * 1024;

}  // namespace

PrivateKey PrivateKey::generate() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  STARLING_CHECK(key != nullptr);  // fails only without memory or without a random source
  return PrivateKey(std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free));
}

Result<PrivateKey> PrivateKey::parse_pem(std::string_view pem) {
  const BioPointer bio = bio_over(pem);
  // The empty password keeps OpenSSL from asking for one on the terminal.
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>(""));
  clear_openssl_errors();
  const std::shared_ptr<EVP_PKEY> owner(key, EVP_PKEY_free);
  if (!key || !is_p256(*key)) {
    return rejected("bad-key", "this is no P-256 private key in PEM without a password");
  }
  return PrivateKey(owner);
}

Result<PrivateKey> PrivateKey::load(const std::filesystem::path& path) {
  STARLING_ASSIGN(Bytes pem, read_file(path, kKeyPemBytesMax));
  const WipeAtEnd wiped(pem);
  Result<PrivateKey> key = parse_pem(as_text(pem));
  if (!key) return key.error().within(path.string());
  return key;
}

Result<void> PrivateKey::save(const std::filesystem::path& path) const {
  const BioPointer bio(BIO_new(BIO_s_secmem()));
  STARLING_CHECK(bio && PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0,
                                                      nullptr, nullptr) == 1);
  return write_durably(path, as_bytes(bio_content(bio)), {.secret = true});
}

Sha256Digest PrivateKey::public_key_digest() const { return spki_digest(*key_); }

}  // namespace starling::identity

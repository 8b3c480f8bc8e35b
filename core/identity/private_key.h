// SPDX-License-Identifier: Apache-2.0
// A P-256 private key. It is made where it is used and never travels.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "core/base/digest.h"
#include "core/base/error.h"

struct evp_pkey_st;

namespace starling::identity {

// A handle to an immutable key; copies share it.
class PrivateKey {
 public:
  static PrivateKey generate();
  // PKCS#8 PEM without a password; "bad-key" for anything else than a P-256 key.
  [[nodiscard]] static Result<PrivateKey> parse_pem(std::string_view pem);
  [[nodiscard]] static Result<PrivateKey> load(const std::filesystem::path& path);
  // Writes PEM durably with mode 0600.
  [[nodiscard]] Result<void> save(const std::filesystem::path& path) const;

  // SHA-256 over the SubjectPublicKeyInfo of the public half.
  Sha256Digest public_key_digest() const;
  evp_pkey_st* native() const { return key_.get(); }

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace starling::identity

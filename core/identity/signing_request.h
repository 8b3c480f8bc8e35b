// SPDX-License-Identifier: Apache-2.0
// PKCS#10: a device asks for a certificate for the key that it made. Of what a request says only
// the public key is used; names and roles come from the token that admits it.
#pragma once

#include <memory>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/identity/private_key.h"

struct X509_req_st;

namespace starling::identity {

class SigningRequest {
 public:
  static constexpr std::size_t kBytesMax = 4096;

  static SigningRequest make(const PrivateKey& key);
  // Checks size, form, key type (P-256) and proof of possession; "bad-request" otherwise.
  [[nodiscard]] static Result<SigningRequest> parse(ByteView der);

  const Bytes& der() const { return der_; }
  Sha256Digest digest() const { return sha256(der_); }
  Sha256Digest public_key_digest() const;
  X509_req_st* native() const { return request_.get(); }

 private:
  SigningRequest(std::shared_ptr<X509_req_st> request, Bytes der)
      : request_(std::move(request)), der_(std::move(der)) {}
  std::shared_ptr<X509_req_st> request_;
  Bytes der_;
};

}  // namespace starling::identity

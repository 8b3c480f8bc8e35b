// SPDX-License-Identifier: Apache-2.0
#include "core/identity/signing_request.h"

#include "core/base/check.h"
#include "core/identity/openssl_handles.h"
#include "core/identity/public_key.h"

namespace starling::identity {
namespace {

Error bad_request(std::string message) { return rejected("bad-request", std::move(message)); }

}  // namespace

SigningRequest SigningRequest::make(const PrivateKey& key) {
  const std::shared_ptr<X509_REQ> request(X509_REQ_new(), X509_REQ_free);
  STARLING_CHECK(request && X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
                 X509_REQ_set_pubkey(request.get(), key.native()) == 1 &&
                 X509_REQ_sign(request.get(), key.native(), EVP_sha256()) > 0);
  Bytes der(static_cast<std::size_t>(i2d_X509_REQ(request.get(), nullptr)));
  unsigned char* end = uchars(der.data());
  STARLING_CHECK(i2d_X509_REQ(request.get(), &end) > 0);
  return {request, std::move(der)};
}

Result<SigningRequest> SigningRequest::parse(ByteView der) {
  if (der.size() > kBytesMax) return bad_request("a certificate request of more than 4 KiB");
  const unsigned char* end = uchars(der.data());
  RequestPointer parsed(d2i_X509_REQ(nullptr, &end, static_cast<long>(der.size())));
  EVP_PKEY* key = parsed ? X509_REQ_get0_pubkey(parsed.get()) : nullptr;
  const bool whole = key && end == uchars(der.data()) + der.size();
  const bool proven = whole && is_p256(*key) && X509_REQ_verify(parsed.get(), key) == 1;
  clear_openssl_errors();
  if (!whole) return bad_request("this is no PKCS#10 certificate request");
  if (!is_p256(*key)) return bad_request("a certificate request needs a P-256 key");
  if (!proven) return bad_request("the certificate request is not signed by the key that it names");
  return SigningRequest(std::shared_ptr<X509_REQ>(parsed.release(), X509_REQ_free), to_bytes(der));
}

Sha256Digest SigningRequest::public_key_digest() const {
  return spki_digest(*X509_REQ_get0_pubkey(request_.get()));
}

}  // namespace starling::identity

// SPDX-License-Identifier: Apache-2.0
#include "core/identity/signature.h"

#include <openssl/ec.h>

#include "core/base/check.h"
#include "core/identity/openssl_handles.h"
#include "core/identity/public_key.h"

namespace starling::identity {
namespace {

using DigestContextPointer = OpensslPointer<EVP_MD_CTX, EVP_MD_CTX_free>;
using EcdsaPointer = OpensslPointer<ECDSA_SIG, ECDSA_SIG_free>;

constexpr int kHalf = static_cast<int>(std::tuple_size_v<Signature> / 2);

// OpenSSL's DER has many lengths and, with a lenient parser, many forms; ours has one.
Signature from_der(const Bytes& der) {
  const unsigned char* at = uchars(der.data());
  const EcdsaPointer pair(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  STARLING_CHECK(pair != nullptr);
  Signature signature;
  unsigned char* out = uchars(signature.data());
  STARLING_CHECK(BN_bn2binpad(ECDSA_SIG_get0_r(pair.get()), out, kHalf) == kHalf);
  STARLING_CHECK(BN_bn2binpad(ECDSA_SIG_get0_s(pair.get()), out + kHalf, kHalf) == kHalf);
  return signature;
}

Bytes to_der(const Signature& signature) {
  const unsigned char* from = uchars(signature.data());
  BignumPointer r(BN_bin2bn(from, kHalf, nullptr));
  BignumPointer s(BN_bin2bn(from + kHalf, kHalf, nullptr));
  const EcdsaPointer pair(ECDSA_SIG_new());
  STARLING_CHECK(pair && r && s && ECDSA_SIG_set0(pair.get(), r.get(), s.get()) == 1);
  (void)r.release();
  (void)s.release();
  Bytes der(static_cast<std::size_t>(i2d_ECDSA_SIG(pair.get(), nullptr)));
  unsigned char* end = uchars(der.data());
  STARLING_CHECK(i2d_ECDSA_SIG(pair.get(), &end) > 0);
  return der;
}

}  // namespace

Signature sign(const PrivateKey& key, ByteView message) {
  const DigestContextPointer context(EVP_MD_CTX_new());
  STARLING_CHECK(context && EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr,
                                               key.native()) == 1);
  const auto sign_into = [&](unsigned char* out, std::size_t& size) {
    return EVP_DigestSign(context.get(), out, &size, uchars(message.data()), message.size());
  };
  std::size_t size = 0;
  STARLING_CHECK(sign_into(nullptr, size) == 1);
  Bytes der(size);
  STARLING_CHECK(sign_into(uchars(der.data()), size) == 1);
  der.resize(size);
  return from_der(der);
}

bool is_signed_by(const Certificate& certificate, ByteView message, const Signature& signature) {
  EVP_PKEY* key = X509_get0_pubkey(certificate.native());
  if (key == nullptr || !is_p256(*key)) return false;
  const Bytes der = to_der(signature);
  const DigestContextPointer context(EVP_MD_CTX_new());
  STARLING_CHECK(context &&
                 EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1);
  const int good = EVP_DigestVerify(context.get(), uchars(der.data()), der.size(),
                                    uchars(message.data()), message.size());
  clear_openssl_errors();
  return good == 1;
}

}  // namespace starling::identity

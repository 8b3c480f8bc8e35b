// SPDX-License-Identifier: Apache-2.0
// Owners of OpenSSL objects, for sources only: no header of this or another library includes it.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace starling::identity {

template <auto kFree>
struct OpensslDelete {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};

template <class T, auto kFree>
using OpensslPointer = std::unique_ptr<T, OpensslDelete<kFree>>;

using BioPointer = OpensslPointer<BIO, BIO_free_all>;
using BignumPointer = OpensslPointer<BIGNUM, BN_free>;
using KeyPointer = OpensslPointer<EVP_PKEY, EVP_PKEY_free>;
using CertificatePointer = OpensslPointer<X509, X509_free>;
using RequestPointer = OpensslPointer<X509_REQ, X509_REQ_free>;
using ExtensionPointer = OpensslPointer<X509_EXTENSION, X509_EXTENSION_free>;
using GeneralNamesPointer = OpensslPointer<GENERAL_NAMES, GENERAL_NAMES_free>;
using StorePointer = OpensslPointer<X509_STORE, X509_STORE_free>;
using StoreContextPointer = OpensslPointer<X509_STORE_CTX, X509_STORE_CTX_free>;

// A read-only view of `text` as a BIO; `text` must outlive it.
inline BioPointer bio_over(std::string_view text) {
  return BioPointer(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

inline std::string_view bio_content(const BioPointer& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

inline const unsigned char* uchars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
inline unsigned char* uchars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

// Forgets the errors that a failed parse left on OpenSSL's queue of this thread: the next TLS
// operation would take them for its own.
inline void clear_openssl_errors() { ERR_clear_error(); }

}  // namespace starling::identity

// SPDX-License-Identifier: Apache-2.0
#include "core/net/tls_callbacks.h"

#include <openssl/ssl.h>

#include <vector>

#include "core/net/tls_engine.h"
#include "core/net/tls_errors.h"

namespace starling::net {
namespace {

TlsEngine& engine_of(const SSL* ssl) { return *static_cast<TlsEngine*>(SSL_get_app_data(ssl)); }

identity::Certificate share(X509* certificate) {
  X509_up_ref(certificate);
  return identity::Certificate::adopt(certificate);
}

// What the other side sent, leaf first.
std::vector<identity::Certificate> presented_chain(X509_STORE_CTX* store) {
  std::vector<identity::Certificate> chain;
  X509* leaf = X509_STORE_CTX_get0_cert(store);
  const STACK_OF(X509)* rest = X509_STORE_CTX_get0_untrusted(store);
  if (leaf != nullptr) chain.push_back(share(leaf));
  for (int i = 0; rest != nullptr && i < sk_X509_num(rest); ++i) {
    X509* certificate = sk_X509_value(rest, i);
    if (certificate != leaf) chain.push_back(share(certificate));
  }
  return chain;
}

int verify(X509_STORE_CTX* store, void* /*unused*/) {
  const void* ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
  const std::vector<identity::Certificate> chain = presented_chain(store);
  const Result<void> good = engine_of(static_cast<const SSL*>(ssl)).verify_peer(chain);
  X509_STORE_CTX_set_error(store, good ? X509_V_OK : verify_error_for(good.error()));
  return good ? 1 : 0;
}

// A client of TLS 1.3 that names no protocol at all gets no further. (One that does not know TLS
// 1.3 is refused for that, by OpenSSL.)
int look_at_hello(SSL* ssl, int* alert, void* /*unused*/) {
  const unsigned char* data = nullptr;
  std::size_t size = 0;
  const bool knows_tls_1_3 =
      SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_supported_versions, &data, &size) == 1;
  const bool names_protocol =
      SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &data,
                                &size) == 1;
  if (names_protocol || !knows_tls_1_3) return SSL_CLIENT_HELLO_SUCCESS;
  engine_of(ssl).refuse_protocol();
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

// `offered`: names, each behind a byte with its length; OpenSSL has checked the form.
int choose_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned offered_size, void* /*unused*/) {
  TlsEngine& engine = engine_of(ssl);
  for (unsigned at = 0; at < offered_size; at += 1U + offered[at]) {
    const std::string_view name(reinterpret_cast<const char*>(offered) + at + 1, offered[at]);
    if (!engine.accept_protocol(name)) continue;
    *chosen = offered + at + 1;
    *chosen_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  engine.refuse_protocol();
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

void set_verify_callback(SSL_CTX* context) {
  SSL_CTX_set_cert_verify_callback(context, verify, nullptr);
}

void set_server_callbacks(SSL_CTX* context) {
  SSL_CTX_set_client_hello_cb(context, look_at_hello, nullptr);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
}

}  // namespace starling::net

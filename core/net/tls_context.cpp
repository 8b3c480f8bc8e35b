// SPDX-License-Identifier: Apache-2.0
#include "core/net/tls_context.h"

#include <openssl/tls1.h>

#include <algorithm>
#include <string>

#include "core/base/check.h"
#include "core/net/processor.h"
#include "core/net/tls_callbacks.h"
#include "core/net/tls_errors.h"
#include "core/net/tls_settings.h"

namespace starling::net {
namespace {

constexpr long kPeerChainBytesMax = 16 * 1024;

const char* cipher_suites() {
  // Without instructions for AES the stream cipher is several times faster.
  return has_aes_instructions()
             ? "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
             : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
}

// A library that does not know the hybrid group refuses the whole list.
bool set_groups(SSL_CTX* context) {
  const bool done = SSL_CTX_set1_groups_list(context, "X25519MLKEM768:X25519:P-256") == 1 ||
                    SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1;
  identity::clear_openssl_errors();
  return done;
}

SslContextPointer make_context(identity::Side side) {
  constexpr const char* kSignatures = "ecdsa_secp256r1_sha256:ed25519";
  SslContextPointer owner(
      SSL_CTX_new(side == identity::Side::kServer ? TLS_server_method() : TLS_client_method()));
  SSL_CTX* context = owner.get();
  STARLING_CHECK(context != nullptr);
  SSL_CTX_set_security_level(context, 2);
  STARLING_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                 SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                 SSL_CTX_set_ciphersuites(context, cipher_suites()) == 1 && set_groups(context) &&
                 SSL_CTX_set1_sigalgs_list(context, kSignatures) == 1 &&
                 SSL_CTX_set1_client_sigalgs_list(context, kSignatures) == 1);
  // A ticket would carry an identity past its revocation: no resumption of any kind.
  STARLING_CHECK(SSL_CTX_set_num_tickets(context, 0) == 1);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(context, 0);
  SSL_CTX_set_recv_max_early_data(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  SSL_CTX_clear_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_max_cert_list(context, kPeerChainBytesMax);
  SSL_CTX_set_keylog_callback(context, nullptr);
  set_verify_callback(context);
  return owner;
}

// Our certificate with its authority behind it, in which a joining device looks for its pin.
Result<void> use_credentials(SSL_CTX* context, const identity::Credentials& credentials) {
  const bool done = SSL_CTX_use_certificate(context, credentials.certificate.native()) == 1 &&
                    SSL_CTX_use_PrivateKey(context, credentials.key.native()) == 1 &&
                    SSL_CTX_check_private_key(context) == 1;
  if (!done) return take_tls_error().within("our own certificate cannot be used");
  for (const identity::Certificate& authority : credentials.authorities) {
    STARLING_CHECK(SSL_CTX_add1_chain_cert(context, authority.native()) == 1);
  }
  return {};
}

Result<void> check_accepted(const std::vector<AcceptedProtocol>& accepted) {
  STARLING_CHECK(!accepted.empty());
  for (const AcceptedProtocol& each : accepted) {
    STARLING_CHECK(each.client.has_value() == (each.protocol != Protocol::kEnrolment));
    STARLING_CHECK(!each.client || each.client->time != nullptr);
  }
  return {};
}

}  // namespace

std::string_view alpn_name(Protocol protocol) {
  switch (protocol) {
    case Protocol::kSession:
      return "starling/1";
    case Protocol::kEnrolment:
      return "starling-enrol/1";
    case Protocol::kPeer:
      return "starling-peer/1";
  }
  return "";
}

const TlsSettings& settings_of(const TlsContext& context) {
  return static_cast<const TlsSettings&>(context);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make_server(
    const identity::Credentials& credentials, std::vector<AcceptedProtocol> protocols) {
  STARLING_TRY(check_accepted(protocols));
  auto settings = std::make_shared<TlsSettings>();
  settings->side = identity::Side::kServer;
  settings->context = make_context(identity::Side::kServer);
  settings->authorities = credentials.authorities;
  settings->accepted = std::move(protocols);
  STARLING_TRY(use_credentials(settings->context.get(), credentials));
  set_server_callbacks(settings->context.get());
  return settings;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make_client(
    Protocol protocol, const identity::Credentials& credentials, identity::PeerPolicy server) {
  STARLING_CHECK(protocol != Protocol::kEnrolment && server.time != nullptr);
  auto settings = std::make_shared<TlsSettings>();
  settings->context = make_context(identity::Side::kClient);
  settings->authorities = credentials.authorities;
  settings->protocol = protocol;
  settings->server = std::move(server);
  STARLING_TRY(use_credentials(settings->context.get(), credentials));
  return settings;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make_enrolment_client(
    const Sha256Digest& authority_pin, identity::PeerPolicy server) {
  STARLING_CHECK(server.time != nullptr);
  auto settings = std::make_shared<TlsSettings>();
  settings->context = make_context(identity::Side::kClient);
  settings->authority_pin = authority_pin;
  settings->protocol = Protocol::kEnrolment;
  settings->server = std::move(server);
  return settings;
}

}  // namespace starling::net

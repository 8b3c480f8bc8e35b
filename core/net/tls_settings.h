// SPDX-License-Identifier: Apache-2.0
// What stands behind a TlsContext. For sources of this folder only.
#pragma once

#include <openssl/ssl.h>

#include "core/identity/openssl_handles.h"
#include "core/net/tls_context.h"

namespace starling::net {

using SslContextPointer = identity::OpensslPointer<SSL_CTX, SSL_CTX_free>;
using SslPointer = identity::OpensslPointer<SSL, SSL_free>;

class TlsSettings final : public TlsContext {
 public:
  identity::Side side = identity::Side::kClient;  // ours
  SslContextPointer context;
  std::vector<identity::Certificate> authorities;
  std::optional<Sha256Digest> authority_pin;  // instead of authorities
  std::vector<AcceptedProtocol> accepted;     // of a server
  Protocol protocol = Protocol::kSession;     // of a client
  identity::PeerPolicy server;                // of a client
};

const TlsSettings& settings_of(const TlsContext& context);

}  // namespace starling::net

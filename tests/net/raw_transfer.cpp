// SPDX-License-Identifier: Apache-2.0
#include "tests/net/raw_transfer.h"

#include <netinet/tcp.h>

#include <vector>

#include "core/base/check.h"
#include "tests/net/raw_client.h"

namespace starling::testing {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;

SSL_CTX* context(const identity::Credentials& credentials, const SSL_METHOD* method) {
  SSL_CTX* context = SSL_CTX_new(method);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL_CTX_use_certificate(context, credentials.certificate.native());
  SSL_CTX_use_PrivateKey(context, credentials.key.native());
  return context;
}

void send_all(std::uint16_t port, const identity::Credentials& credentials, std::size_t bytes) {
  const RawSocket socket(port);
  const int yes = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  SSL_CTX* tls = context(credentials, TLS_client_method());
  SSL* ssl = SSL_new(tls);
  SSL_set_fd(ssl, socket.fd());
  STARLING_CHECK(SSL_connect(ssl) == 1);
  const std::vector<char> piece(kPieceBytes);
  for (std::size_t sent = 0; sent < bytes; sent += kPieceBytes) {
    STARLING_CHECK(SSL_write(ssl, piece.data(), static_cast<int>(kPieceBytes)) > 0);
  }
  SSL_shutdown(ssl);
  SSL_free(ssl);
  SSL_CTX_free(tls);
}

void receive_all(const RawListener& listener, const identity::Credentials& credentials) {
  const RawSocket socket = listener.accept();
  SSL_CTX* tls = context(credentials, TLS_server_method());
  SSL* ssl = SSL_new(tls);
  SSL_set_fd(ssl, socket.fd());
  STARLING_CHECK(SSL_accept(ssl) == 1);
  std::vector<char> piece(kPieceBytes);
  while (SSL_read(ssl, piece.data(), static_cast<int>(piece.size())) > 0) {
  }
  SSL_free(ssl);
  SSL_CTX_free(tls);
}

}  // namespace

Figures bare_tls(const identity::Credentials& client, const identity::Credentials& server,
                 std::size_t bytes) {
  STARLING_CHECK(bytes % kPieceBytes == 0);
  const RawListener listener;
  return measure([&] { send_all(listener.port(), client, bytes); },
                 [&] { receive_all(listener, server); });
}

}  // namespace starling::testing

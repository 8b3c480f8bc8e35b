// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bare_rounds.h"

#include <netinet/tcp.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>

#include "core/base/check.h"
#include "tests/net/raw_client.h"

namespace starling::bench {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;

class BareLink {
 public:
  BareLink(const testing::RawSocket& socket, const identity::Credentials& credentials, bool server)
      : context_(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method())) {
    const int yes = 1;
    ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_use_certificate(context_, credentials.certificate.native());
    SSL_CTX_use_PrivateKey(context_, credentials.key.native());
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket.fd());
    STARLING_CHECK((server ? SSL_accept(ssl_) : SSL_connect(ssl_)) == 1);
  }
  ~BareLink() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  BareLink(const BareLink&) = delete;
  BareLink& operator=(const BareLink&) = delete;

  void send(std::uint64_t bytes) {
    while (bytes > 0) {
      const auto piece = std::min<std::uint64_t>(bytes, kPieceBytes);
      STARLING_CHECK(SSL_write(ssl_, piece_.data(), static_cast<int>(piece)) > 0);
      bytes -= piece;
    }
  }
  void receive(std::uint64_t bytes) {
    while (bytes > 0) {
      const auto piece = std::min<std::uint64_t>(bytes, kPieceBytes);
      const int count = SSL_read(ssl_, piece_.data(), static_cast<int>(piece));
      STARLING_CHECK(count > 0);
      bytes -= static_cast<std::uint64_t>(count);
    }
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  std::vector<char> piece_ = std::vector<char>(kPieceBytes);
};

}  // namespace

std::vector<double> bare_rounds(const identity::Credentials& credentials, std::uint64_t down,
                                std::uint64_t up, int repetitions) {
  const testing::RawListener listener;
  const pid_t server = ::fork();
  STARLING_CHECK(server >= 0);
  if (server == 0) {
    const testing::RawSocket socket = listener.accept();
    BareLink link(socket, credentials, true);
    for (int i = 0; i < repetitions; ++i) {
      link.receive(1);
      link.send(down);
      link.receive(up);
      link.send(1);
    }
    ::_exit(0);
  }
  const testing::RawSocket socket(listener.port());
  BareLink link(socket, credentials, false);
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    link.send(1);
    link.receive(down);
    link.send(up);
    link.receive(1);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  ::waitpid(server, nullptr, 0);
  return seconds;
}

}  // namespace starling::bench

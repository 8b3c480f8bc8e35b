// SPDX-License-Identifier: Apache-2.0
// A blocking client that is not of our making, in a thread of its own: it speaks what a test tells
// it to, also what our library never would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "core/identity/certificate.h"

namespace starling::testing {

struct Accepted {
  int fd = -1;
};

class RawSocket {
 public:
  explicit RawSocket(Accepted accepted) : fd_(accepted.fd), connected_(true) { set_limit(); }
  explicit RawSocket(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    set_limit();
  }
  ~RawSocket() { ::close(fd_); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  int fd() const { return fd_; }
  bool connected() const { return connected_; }
  void send(const std::string& text) { ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Instead of a goodbye, and with what is still on its way dropped.
  void reset_when_closed() const {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  // Whether the other side has closed; drops what came before.
  bool ended() const {
    char piece[4096];
    ssize_t count = 1;
    while (count > 0) count = ::recv(fd_, piece, sizeof piece, MSG_DONTWAIT);
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  // Everything until the other side closes.
  std::string receive_all() {
    std::string all;
    char piece[4096];
    for (;;) {
      const ssize_t count = ::recv(fd_, piece, sizeof piece, 0);
      if (count <= 0) return all;
      all.append(piece, static_cast<std::size_t>(count));
    }
  }

 private:
  // A test that goes wrong ends in a failure, not in a hang.
  void set_limit() const {
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  int fd_;
  bool connected_ = false;
};

class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ready_ = ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
             ::listen(fd_, 8) == 0;
  }
  ~RawListener() { ::close(fd_); }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;

  // 0 if it cannot listen.
  std::uint16_t port() const {
    if (!ready_) return 0;
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  // Whether somebody waits to be accepted.
  bool waits() const {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) == 1;
  }
  RawSocket accept() const { return RawSocket(Accepted{::accept(fd_, nullptr, nullptr)}); }

 private:
  int fd_;
  bool ready_ = false;
};

struct RawTls {
  int version_max = TLS1_3_VERSION;
  std::string alpn = "starling/1";  // empty: none is offered
  const identity::Credentials* credentials = nullptr;
  SSL_SESSION* session = nullptr;  // to resume
};

struct RawOutcome {
  bool handshake = false;
  bool resumed = false;
  bool was_offered_ticket = false;
  std::string received;  // plaintext
  std::string error;     // OpenSSL's reason
};

inline std::string raw_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* text = ERR_reason_error_string(code);
  return text ? text : "";
}

inline int count_ticket(SSL* ssl, SSL_SESSION*) {
  *static_cast<bool*>(SSL_get_app_data(ssl)) = true;
  return 0;
}

// Connects, sends `words` as soon as its own handshake is done, and reads until the end.
inline RawOutcome talk_tls(std::uint16_t port, const RawTls& options, const std::string& words) {
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a closed socket as to an open one
  RawOutcome outcome;
  RawSocket socket(port);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, options.version_max);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT);
  SSL_CTX_sess_set_new_cb(context, count_ticket);
  if (options.credentials) {
    SSL_CTX_use_certificate(context, options.credentials->certificate.native());
    SSL_CTX_use_PrivateKey(context, options.credentials->key.native());
  }
  SSL* ssl = SSL_new(context);
  SSL_set_app_data(ssl, &outcome.was_offered_ticket);
  if (options.session) SSL_set_session(ssl, options.session);
  if (!options.alpn.empty()) {
    const std::string offer = static_cast<char>(options.alpn.size()) + options.alpn;
    SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(offer.data()),
                        static_cast<unsigned>(offer.size()));
  }
  SSL_set_fd(ssl, socket.fd());
  outcome.handshake = SSL_connect(ssl) == 1;
  if (outcome.handshake) {
    outcome.resumed = SSL_session_reused(ssl) == 1;
    if (!words.empty()) SSL_write(ssl, words.data(), static_cast<int>(words.size()));
    char piece[4096];
    for (;;) {
      const int count = SSL_read(ssl, piece, sizeof piece);
      if (count <= 0) break;
      outcome.received.append(piece, static_cast<std::size_t>(count));
    }
  }
  outcome.error = raw_reason();
  SSL_free(ssl);
  SSL_CTX_free(context);
  return outcome;
}

}  // namespace starling::testing

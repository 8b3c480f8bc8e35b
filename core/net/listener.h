// SPDX-License-Identifier: Apache-2.0
// Accepts connections and authenticates them; only those that pass are handed on. Of a refused one
// not a single application byte has been read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/net/connection.h"

namespace starling::net {

struct ListenerOptions {
  std::string host = "0.0.0.0";  // numeric; "::" takes IPv4 too
  std::uint16_t port = 0;        // 0: any free one
  // At a time. When there are as many, those that got least far make room ("too-many-handshakes"),
  // or newcomers wait in the kernel's backlog; see arrival_slots.h.
  unsigned handshakes_max = 256;
  unsigned handshakes_per_address_max = 64;  // of one IPv4 address or IPv6 /64
  Duration handshake_undisturbed = std::chrono::milliseconds(500);
  Duration handshake_max = std::chrono::seconds(5);
  ConnectionOptions connection;
};

// A connection that was not handed on, and why: "not-tls", "tls-version", "wrong-alpn", "deadline",
// "rate-limited", "too-many-handshakes", "connection-lost", the reasons of
// core/identity/peer_policy.h, or "refused-*" where the other side refused us.
struct Refusal {
  std::string remote_address;
  Error error;
};

struct ListenerHandlers {
  // Takes an authenticated connection; look at its protocol().
  std::function<void(std::unique_ptr<Connection>)> on_connection = nullptr;
  std::function<void(const Refusal&)> on_refused = nullptr;       // may be null
  std::function<bool(const std::string&)> may_connect = nullptr;  // by numeric address; may be null
};

class Listener {
 public:
  // Listens and accepts at once. "cannot-listen" (kRejected) where the address is bad, in use or
  // not ours. The loop must outlive the listener.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(EventLoop& loop,
                                                              std::shared_ptr<const TlsContext> tls,
                                                              ListenerOptions options,
                                                              ListenerHandlers handlers);
  // Requires: close() has been awaited.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const;
  // Later connections use `tls`; present ones keep theirs.
  void set_tls(std::shared_ptr<const TlsContext> tls);
  // Stops accepting and drops the handshakes in progress.
  Async<void> close();

 private:
  struct Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace starling::net

// SPDX-License-Identifier: Apache-2.0
// A TCP proxy in front of one node that makes its links bad on purpose: bytes that come late,
// slowly or not at all, and connections that break. It tells who dials by the address that the
// connection comes from, so each node dials from an address of its own (127.x.y.z).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/identity/host_port.h"
#include "core/net/event_loop.h"

namespace starling::gossip {

// What the bytes of one direction between two nodes meet. TCP loses nothing: what a partition would
// swallow is held back and sent again by the kernel in the end, so here it is held back too.
struct LinkCondition {
  Duration delay{};
  Duration jitter{};            // added to the delay, uniform, anew for each piece; order is kept
  double bytes_per_second = 0;  // 0: no limit
  bool held = false;            // nothing passes
  friend bool operator==(const LinkCondition&, const LinkCondition&) = default;
};

class TcpProxy {
 public:
  enum class Direction : std::uint8_t { kToTarget, kFromTarget };

  struct Options {
    identity::HostPort listen;  // numeric IPv4; port 0: any free one
    identity::HostPort target;  // likewise
    std::uint64_t seed = 1;     // of the jitter
    // On their way, of each direction of a connection; what is more stays with the sender. It also
    // bounds the throughput of a delayed link, as a window does: so many bytes a delay.
    std::size_t buffer_bytes_max = 4 << 20;
    Duration connect_deadline = std::chrono::seconds(5);
  };

  // Listens at once; "cannot-listen" where the address is bad, in use or not ours. The loop must
  // outlive the proxy.
  [[nodiscard]] static Result<std::unique_ptr<TcpProxy>> open(net::EventLoop& loop,
                                                              const Options& options);
  // Requires: close() has been awaited.
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::uint16_t port() const;

  // From now on; a new delay only for bytes that enter from now on. `dialler` is a numeric address.
  void set(const std::string& dialler, Direction direction, const LinkCondition& condition);
  // Both ends of each connection of `dialler` see it reset.
  void reset(const std::string& dialler);

  std::size_t connections() const;
  // Drops everything.
  net::Async<void> close();

 private:
  struct Impl;
  explicit TcpProxy(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "core/net/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace starling::net {
namespace {

using boost::asio::detail::socket_option::integer;
using UserTimeout = integer<IPPROTO_TCP, TCP_USER_TIMEOUT>;
using KeepaliveIdle = integer<IPPROTO_TCP, TCP_KEEPIDLE>;
using KeepaliveInterval = integer<IPPROTO_TCP, TCP_KEEPINTVL>;
using KeepaliveProbes = integer<IPPROTO_TCP, TCP_KEEPCNT>;
using UnsentLowWater = integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>;

constexpr int kKeepaliveIdleSeconds = 30;
constexpr int kKeepaliveIntervalSeconds = 10;
constexpr int kKeepaliveProbes = 3;
// Of what the kernel has not put on the wire yet: more would let a cancel wait behind megabytes.
constexpr int kUnsentBytes = 256 * 1024;

}  // namespace

void prepare_socket(boost::asio::ip::tcp::socket& socket, Duration unacknowledged_max) {
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(unacknowledged_max).count();
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  socket.set_option(KeepaliveIdle(kKeepaliveIdleSeconds), ignored);
  socket.set_option(KeepaliveInterval(kKeepaliveIntervalSeconds), ignored);
  socket.set_option(KeepaliveProbes(kKeepaliveProbes), ignored);
  socket.set_option(UserTimeout(static_cast<int>(milliseconds)), ignored);
  socket.set_option(UnsentLowWater(kUnsentBytes), ignored);
}

}  // namespace starling::net

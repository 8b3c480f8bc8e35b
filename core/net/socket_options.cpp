// SPDX-License-Identifier: Apache-2.0
#include "core/net/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace starling::net {

namespace asio = boost::asio;

namespace {

constexpr int kKeepaliveIdleSeconds = 30;
constexpr int kKeepaliveIntervalSeconds = 10;
constexpr int kKeepaliveProbes = 3;
// Of what the kernel has not put on the wire yet: more would let a cancel wait behind megabytes.
constexpr int kUnsentBytes = 256 * 1024;

}  // namespace

void prepare_socket(asio::ip::tcp::socket& socket, Duration unacknowledged_max) {
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  const auto set = [fd = socket.native_handle()](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(unacknowledged_max).count();
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds));
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
}

std::string numeric_address(const asio::ip::tcp::endpoint& endpoint) {
  const asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

}  // namespace starling::net

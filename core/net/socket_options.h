// SPDX-License-Identifier: Apache-2.0
// What every TCP socket of ours is set to. For sources of this folder only.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "core/base/clock.h"

namespace starling::net {

// Non-blocking, no Nagle, keepalive, and a limit to how long sent bytes may stay unacknowledged. A
// socket that broke meanwhile says so at its first use.
void prepare_socket(boost::asio::ip::tcp::socket& socket, Duration unacknowledged_max);

// Numeric, without the port; an IPv4 address as such also where an IPv6 socket took it.
std::string numeric_address(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace starling::net

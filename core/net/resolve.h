// SPDX-License-Identifier: Apache-2.0
// Name look-up that can be given up. For sources of this folder only.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/net/event_loop.h"

namespace starling::net {

// The endpoints of a DNS name or a numeric address; "cannot-resolve". A look-up that is cancelled
// goes on unseen until the system's resolver gives up.
Async<Result<std::vector<boost::asio::ip::tcp::endpoint>>> resolve(EventLoop& loop,
                                                                   std::string host,
                                                                   std::uint16_t port);

}  // namespace starling::net

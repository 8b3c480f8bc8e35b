// SPDX-License-Identifier: Apache-2.0
// Dialling: name look-up, TCP, TLS, and the other side's word that our certificate is good.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <memory>
#include <string>

#include "core/net/connection.h"

namespace starling::net {

struct ConnectOptions {
  Duration deadline = std::chrono::seconds(15);         // for all of it
  Duration attempt_deadline = std::chrono::seconds(5);  // for TCP to one of several addresses
  boost::asio::ip::address bind = {};  // local address to dial from; unspecified: any
  ConnectionOptions connection;
};

// `tls` comes from make_client or make_enrolment_client; an unset address in its policy becomes
// `host`. Errors: cannot-resolve, cannot-connect, deadline, connection-lost, cancelled (kRetry);
// not-tls, tls-version, wrong-alpn and the reasons of core/identity/peer_policy.h, where we refuse
// the server; the same with "refused-" before them, where the server refuses us.
Async<Result<std::unique_ptr<Connection>>> connect(EventLoop& loop, std::string host,
                                                   std::uint16_t port,
                                                   std::shared_ptr<const TlsContext> tls,
                                                   ConnectOptions options);

}  // namespace starling::net

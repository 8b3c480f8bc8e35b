// SPDX-License-Identifier: Apache-2.0
#include "edge_client/coordinator_link.h"

namespace starling::edge_client {

Result<std::shared_ptr<const net::TlsContext>> make_coordinator_tls(
    const identity::IdentityDirectory& identity, const Clock& clock) {
  identity::PeerPolicy policy;
  policy.federation = identity.identity().federation;
  policy.roles = {identity::Role::kCoordinator};
  policy.time = [&identity, &clock] {
    return identity::VerificationTime{clock.wall_now(), identity.last_authenticated()};
  };
  return net::TlsContext::make_client(net::Protocol::kSession, identity.credentials(),
                                      std::move(policy));
}

net::Async<Result<std::unique_ptr<net::Connection>>> connect_to_coordinator(
    net::EventLoop& loop, const identity::IdentityDirectory& identity, const Clock& clock,
    net::ConnectOptions options) {
  auto tls = make_coordinator_tls(identity, clock);
  if (!tls) co_return tls.error();
  std::string host = identity.coordinator().host;
  const std::uint16_t port = identity.coordinator().port;
  co_return co_await net::connect(loop, std::move(host), port, *tls, options);
}

}  // namespace starling::edge_client

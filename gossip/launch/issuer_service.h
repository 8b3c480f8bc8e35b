// SPDX-License-Identifier: Apache-2.0
// The issuer of a launched network as a service on loopback: an authority in memory, a listener,
// the peers' sessions and the desk that gives them the roster and takes their reports and models.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/host_port.h"
#include "core/issuer/client_sessions.h"
#include "core/issuer/issuer_desk.h"
#include "core/net/listener.h"

namespace starling::gossip {

class IssuerService {
 public:
  struct Handlers {
    std::function<void(const std::string& member, const protocol::PeerReport&)> on_report;
    std::function<void(const std::string& member, protocol::Exchange, SharedBytes)> on_model;
  };

  // Listens at once, on a free port. All references must outlive it. `parameters`: of the models
  // that may be handed in.
  [[nodiscard]] static Result<std::unique_ptr<IssuerService>> open(net::EventLoop& loop,
                                                                   const Clock& clock, Log& log,
                                                                   std::uint64_t parameters,
                                                                   Handlers handlers);
  // Requires: close() has been awaited.
  ~IssuerService() = default;
  IssuerService(const IssuerService&) = delete;
  IssuerService& operator=(const IssuerService&) = delete;

  const identity::CertificateAuthority& authority() const { return authority_; }
  identity::HostPort address() const;
  // Signs a roster of these members and settings, and gives it to whoever connects.
  [[nodiscard]] Result<void> publish(std::vector<identity::RosterMember> members,
                                     Settings settings);
  net::Async<void> close();

 private:
  IssuerService(net::EventLoop& loop, const Clock& clock, Log& log, std::uint64_t parameters,
                Handlers handlers, identity::CertificateAuthority authority,
                identity::Credentials credentials);
  [[nodiscard]] Result<void> listen();
  void take(SessionId session, const protocol::Envelope& envelope);
  void greet(SessionId session, const protocol::Hello& hello);
  issuer::ClientSessions::Handlers session_handlers();
  issuer::IssuerDesk::Handlers desk_handlers(std::uint64_t parameters, Handlers handlers);

  net::EventLoop& loop_;
  const Clock& clock_;
  identity::CertificateAuthority authority_;
  identity::Credentials credentials_;
  std::map<SessionId, std::string> opened_;  // the peer's name
  issuer::ClientSessions sessions_;
  issuer::IssuerDesk desk_;
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace starling::gossip

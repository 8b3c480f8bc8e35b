// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/issuer_service.h"

#include <fmt/format.h>

#include "core/protocol/messages.h"

namespace starling::gossip {
namespace {

constexpr std::string_view kFederation = "launch";
constexpr std::string_view kName = "launcher";
constexpr auto kRosterLifetime = std::chrono::hours(24 * 7);
constexpr Duration kHeartbeat = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<IssuerService>> IssuerService::open(net::EventLoop& loop, const Clock& clock,
                                                           Log& log, std::uint64_t parameters,
                                                           Handlers handlers) {
  STARLING_ASSIGN(auto authority, identity::CertificateAuthority::make(
                                      {.federation = std::string(kFederation)}, clock.wall_now()));
  STARLING_ASSIGN(auto credentials,
                  authority.issue_credentials({.role = identity::Role::kCoordinator,
                                               .name = std::string(kName),
                                               .addresses = {"127.0.0.1"}},
                                              clock.wall_now()));
  std::unique_ptr<IssuerService> service(
      new IssuerService(loop, clock, log, parameters, std::move(handlers), std::move(authority),
                        std::move(credentials)));
  STARLING_TRY(service->listen());
  return service;
}

IssuerService::IssuerService(net::EventLoop& loop, const Clock& clock, Log& log,
                             std::uint64_t parameters, Handlers handlers,
                             identity::CertificateAuthority authority,
                             identity::Credentials credentials)
    : loop_(loop),
      clock_(clock),
      authority_(std::move(authority)),
      credentials_(std::move(credentials)),
      sessions_(
          loop, clock, log,
          [](const identity::Identity&, const identity::Certificate&) -> Result<void> {
            return {};
          },
          {}, session_handlers()),
      desk_({}, desk_handlers(parameters, std::move(handlers)), log) {}

Result<void> IssuerService::listen() {
  identity::PeerPolicy policy;
  policy.federation = authority_.federation();
  policy.roles = {identity::Role::kPeer};
  policy.time = [&clock = clock_] { return identity::VerificationTime{.now = clock.wall_now()}; };
  STARLING_ASSIGN(auto tls,
                  net::TlsContext::make_server(
                      credentials_, {{.protocol = net::Protocol::kSession, .client = policy}}));
  net::ListenerOptions options{.host = "127.0.0.1"};
  options.handshakes_per_address_max = options.handshakes_max;
  net::ListenerHandlers handlers;
  handlers.on_connection = [this](std::unique_ptr<net::Connection> connection) {
    sessions_.add(std::move(connection));
  };
  STARLING_ASSIGN(listener_, net::Listener::open(loop_, std::move(tls), options, handlers));
  return {};
}

issuer::ClientSessions::Handlers IssuerService::session_handlers() {
  issuer::ClientSessions::Handlers handlers;
  handlers.on_opened = [this](SessionId session, const std::string& name) {
    opened_[session] = name;
  };
  handlers.on_message = [this](SessionId session, const protocol::Envelope& envelope) {
    take(session, envelope);
  };
  handlers.on_closed = [this](SessionId session) {
    opened_.erase(session);
    desk_.closed(session);
  };
  return handlers;
}

issuer::IssuerDesk::Handlers IssuerService::desk_handlers(std::uint64_t parameters,
                                                          Handlers handlers) {
  issuer::IssuerDesk::Handlers desk;
  desk.send = [this](SessionId session, const protocol::Envelope& envelope) {
    sessions_.send(session, envelope);
  };
  desk.queued_bytes = [this](SessionId session) { return sessions_.queued_bytes(session); };
  desk.on_report = std::move(handlers.on_report);
  desk.on_model = std::move(handlers.on_model);
  desk.wants_model = [parameters](const std::string& member,
                                  const protocol::WholeModel& model) -> Result<void> {
    if (model.floats == parameters) return {};
    return rejected("wrong-size", fmt::format("{} hands in a model of {} parameters; the network's "
                                              "has {}",
                                              member, model.floats, parameters));
  };
  return desk;
}

void IssuerService::greet(SessionId session, const protocol::Hello& hello) {
  if (hello.version_min > protocol::kVersion || hello.version_max < protocol::kVersion) {
    return sessions_.close(
        session, "version",
        fmt::format("this launcher speaks protocol version {} alone", protocol::kVersion));
  }
  const std::string name = opened_.at(session);
  const auto now = clock_.wall_now().time_since_epoch();
  sessions_.send(session,
                 {protocol::Welcome{.version = protocol::kVersion,
                                    .federation = authority_.federation(),
                                    .client = name,
                                    .heartbeat = kHeartbeat,
                                    .wall_time_ms = static_cast<std::uint64_t>(now.count())},
                  {}});
  desk_.opened(session, name);
}

void IssuerService::take(SessionId session, const protocol::Envelope& envelope) {
  const protocol::Message& message = envelope.message;
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) return greet(session, *hello);
  if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    return sessions_.send(session, {protocol::Pong{ping->nonce}, {}});
  }
  if (std::holds_alternative<protocol::Bye>(message)) {
    return sessions_.close(session, "bye", "the peer said goodbye");
  }
  if (!desk_.is_mine(session, message)) return;
  if (const auto taken = desk_.take(session, envelope); !taken) {
    const Error why = taken.error();
    sessions_.close(session, why.code(), why.message());
  }
}

identity::HostPort IssuerService::address() const {
  return {.host = "127.0.0.1", .port = listener_->port()};
}

Result<void> IssuerService::publish(std::vector<identity::RosterMember> members,
                                    Settings settings) {
  const WallTime now = clock_.wall_now();
  identity::Roster roster{.federation = authority_.federation(),
                          .run = "launch",
                          .epoch = 1,
                          .issued = now,
                          .expires = now + kRosterLifetime,
                          .settings = std::move(settings),
                          .members = std::move(members)};
  roster.begin_run(now);
  STARLING_ASSIGN(const auto issuer,
                  authority_.issue_credentials(
                      {.role = identity::Role::kIssuer, .name = std::string(kName)}, now));
  STARLING_ASSIGN(auto signed_roster, identity::SignedRoster::sign(roster, issuer));
  return desk_.publish(std::move(signed_roster));
}

net::Async<void> IssuerService::close() {
  co_await listener_->close();
  co_await sessions_.stop();
}

}  // namespace starling::gossip

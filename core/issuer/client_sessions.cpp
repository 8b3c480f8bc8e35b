// SPDX-License-Identifier: Apache-2.0
#include "core/issuer/client_sessions.h"

#include <fmt/format.h>

#include "core/net/alarm.h"

namespace starling::issuer {
namespace {

// Somebody who was revoked is not given the time that others have.
constexpr Duration kGoodbyeOfRevoked = std::chrono::milliseconds(300);

}  // namespace

ClientSessions::ClientSessions(net::EventLoop& loop, const Clock& clock, Log& log, Admit admit,
                               Options options, Handlers handlers)
    : loop_(loop),
      clock_(clock),
      log_(log),
      admit_(std::move(admit)),
      options_(options),
      handlers_(std::move(handlers)),
      refusals_(loop, log, "refused"),
      tasks_(loop) {}

Result<void> ClientSessions::check(const net::Connection& connection) const {
  const identity::VerifiedPeer& peer = *connection.peer();
  STARLING_TRY(admit_(peer.identity, peer.certificate));
  if (sessions_.size() >= options_.sessions_max) {
    return overloaded("too-many-sessions", fmt::format("{} connections are held here, "
                                                       "which is its limit",
                                                       sessions_.size()));
  }
  const auto mine = clients_.find(peer.identity.name);
  if (mine != clients_.end() && mine->second.sessions >= options_.per_client_max) {
    return overloaded("too-many-sessions",
                      fmt::format("{} holds {} connections already, which is its limit",
                                  peer.identity.name, mine->second.sessions));
  }
  return {};
}

void ClientSessions::add(std::unique_ptr<net::Connection> connection) {
  if (const auto admitted = check(*connection); !admitted) {
    return turn_away(std::move(connection), admitted.error());
  }
  const std::string name = connection->peer()->identity.name;
  const WallTime expires = connection->peer()->certificate.validity().not_after;
  const SessionId id(++last_id_);
  const Client fresh{.budget = net::FrameBudget({.per_second = options_.frames_per_second})};
  Client& client = clients_.try_emplace(name, fresh).first->second;
  ++client.sessions;
  const bool is_logged = client.lines.spend(loop_.now());
  if (is_logged) {
    if (const auto more = client.lines.take_unsaid(); more > 0) {
      log_.info("{} connected {} times more within a minute", name, more);
    }
    log_.info("{} connected from {}", name, connection->remote_address());
  }
  const auto session =
      std::make_shared<Session>(Session{id, name, client.budget, expires, std::move(connection),
                                        link::MessageLimits(wire::from_client(false)), is_logged});
  sessions_.emplace(id, session);
  handlers_.on_opened(id, name);
  tasks_.spawn(read(session));
}

void ClientSessions::turn_away(std::unique_ptr<net::Connection> connection, const Error& reason) {
  refusals_.say(connection->remote_address(), reason);
  // Best effort: a connection that cannot take even this is dropped with it.
  (void)link::send(*connection, {protocol::Bye{reason.code(), reason.message()}, {}});
  tasks_.spawn(finish(std::move(connection), loop_.now() + kGoodbyeOfRevoked));
}

net::Async<void> ClientSessions::finish(std::unique_ptr<net::Connection> connection,
                                        TimePoint deadline) {
  co_await connection->close(deadline);
}

net::Async<void> ClientSessions::finish_session(SessionPtr session, TimePoint deadline) {
  co_await session->connection->close(deadline);
}

net::Async<void> ClientSessions::read(SessionPtr session) {
  while (!session->closing) {
    auto frame = co_await session->connection->read_frame(session->limits);
    if (session->closing) break;
    if (!frame) {
      if (frame.error().kind() == ErrorKind::kRejected) say_goodbye(*session, frame.error());
      end(session, frame.error());
      break;
    }
    if (!take(session, *frame)) break;
    const Duration pause = pause_after(*session, *frame);
    if (pause > Duration::zero()) {
      auto slept = co_await net::sleep_until(loop_, loop_.now() + pause);
      if (!slept) break;
    }
  }
}

Duration ClientSessions::pause_after(Session& session, const net::Frame& frame) {
  const Duration pause = session.budget.take(frame, loop_.now());
  if (pause > Duration::zero() && !std::exchange(session.slowed, true)) {
    log_.warning("{} sends more than {} frames a second and is read more slowly", session.client,
                 options_.frames_per_second);
  }
  return pause;
}

// Best effort: a connection that cannot take even this is on its way down.
void ClientSessions::say_goodbye(Session& session, const Error& reason) {
  (void)link::send(*session.connection, {protocol::Bye{reason.code(), reason.message()}, {}});
}

// Revocation closes sessions in its own turn; only time passes unnoticed.
Result<protocol::Envelope> ClientSessions::open(const Session& session,
                                                const net::Frame& frame) const {
  if (clock_.wall_now() > session.expires) {
    return not_authorised(
        "certificate-expired",
        "the certificate of " + session.client + " expired at " + format_rfc3339(session.expires));
  }
  return link::decode(frame);
}

bool ClientSessions::take(const SessionPtr& session, const net::Frame& frame) {
  auto envelope = open(*session, frame);
  if (!envelope) {
    say_goodbye(*session, envelope.error());
    end(session, envelope.error());
    return false;
  }
  if (std::holds_alternative<protocol::Hello>(envelope->message)) {
    session->limits.expect(wire::from_client(true));
  }
  handlers_.on_message(session->id, std::move(*envelope));
  return !session->closing;
}

void ClientSessions::send(SessionId id, const protocol::Envelope& envelope) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const SessionPtr session = found->second;
  if (const auto sent = link::send(*session->connection, envelope); !sent) {
    end(session, sent.error());
  }
}

std::size_t ClientSessions::queued_bytes(SessionId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? 0 : found->second->connection->queued_bytes();
}

void ClientSessions::close(SessionId id, const std::string& code, const std::string& message) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const SessionPtr session = found->second;
  end(session, rejected(code, message));
}

void ClientSessions::end(const SessionPtr& session, const Error& reason) {
  if (std::exchange(session->closing, true)) return;
  if (session->is_logged) {
    // The sentence of a lost connection says all that its code does.
    const bool is_lost = reason.code() == "connection-lost";
    log_.info("{} disconnected{}: {}", session->client,
              is_lost ? "" : fmt::format(" ({})", reason.code()), reason.message());
  }
  sessions_.erase(session->id);
  --clients_.at(session->client).sessions;
  const bool revoked = reason.code() == "certificate-revoked";
  const Duration goodbye =
      revoked ? std::min(options_.goodbye, kGoodbyeOfRevoked) : options_.goodbye;
  tasks_.spawn(finish_session(session, loop_.now() + goodbye));
  handlers_.on_closed(session->id);
}

net::Async<void> ClientSessions::stop() {
  const auto sessions = std::exchange(sessions_, {});
  for (const auto& [id, session] : sessions) {
    end(session, retry("draining", "this side is stopping"));
  }
  tasks_.refuse();
  co_await tasks_.wait();
}

}  // namespace starling::issuer

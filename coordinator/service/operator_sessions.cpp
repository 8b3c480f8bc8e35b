// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/operator_sessions.h"

#include <algorithm>

#include "core/net/alarm.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kQueuedBytesMax = 512 * 1024;  // of answers, before they wait
// Somebody who was revoked is not given the time that others have.
constexpr Duration kGoodbyeOfRevoked = std::chrono::milliseconds(300);

// The last one to the request.
protocol::OperatorReply failed_reply(std::uint64_t id, const Error& error) {
  return {.id = id, .code = error.code(), .message = error.message(), .category = error.category()};
}

}  // namespace

OperatorSessions::OperatorSessions(net::EventLoop& loop, const Clock& clock,
                                   const ClientRegistry& registry, Log& log, Options options,
                                   Respond respond, OnOpened on_opened)
    : loop_(loop),
      clock_(clock),
      registry_(registry),
      log_(log),
      options_(options),
      respond_(std::move(respond)),
      on_opened_(std::move(on_opened)),
      refusals_(loop, log, "refused"),
      tasks_(loop) {}

void OperatorSessions::add(std::unique_ptr<net::Connection> connection) {
  const identity::VerifiedPeer& peer = *connection->peer();
  auto admitted = registry_.check(peer.identity, peer.certificate, clock_.wall_now());
  if (admitted && sessions_.size() >= options_.sessions_max) {
    admitted = overloaded("too-many-sessions",
                          "this coordinator holds as many operator connections as it may");
  }
  const net::FrameBudget fresh({.per_second = options_.frames_per_second});
  const auto session = std::make_shared<Session>(Session{
      .name = peer.identity.name,
      .budget = budgets_.try_emplace(peer.identity.name, fresh).first->second,
      .expires = peer.certificate.validity().not_after,
      .heard_at = clock_.now(),
      .connection = nullptr,
      .limits = link::MessageLimits(wire::from_operator()),
  });
  session->connection = std::move(connection);
  sessions_.push_back(session);
  if (!admitted) {
    refusals_.say(session->connection->remote_address(), admitted.error());
    send(*session, protocol::Bye{admitted.error().code(), admitted.error().message()});
    return end(session, admitted.error());
  }
  on_opened_(session->name);
  const std::weak_ptr<Session> weak = session;
  session->connection->set_drain_handler([this, weak] {
    if (const SessionPtr held = weak.lock()) pump(held);
  });
  tasks_.spawn(read(session));
}

net::Async<void> OperatorSessions::read(SessionPtr session) {
  while (!session->closing) {
    auto frame = co_await session->connection->read_frame(session->limits);
    if (session->closing) break;
    if (!frame) {
      end(session, frame.error());
      break;
    }
    session->heard_at = clock_.now();
    if (!take(session, *frame)) break;
    const Duration pause = session->budget.take(*frame, loop_.now());
    if (pause > Duration::zero()) {
      auto slept = co_await net::sleep_until(loop_, loop_.now() + pause);
      if (!slept) break;
    }
  }
}

net::Async<void> OperatorSessions::finish(SessionPtr session, TimePoint deadline) {
  co_await session->connection->close(deadline);
}

bool OperatorSessions::take(const SessionPtr& session, const net::Frame& frame) {
  auto envelope = link::decode(frame);
  if (envelope && clock_.wall_now() > session->expires) {
    envelope = not_authorised("certificate-expired", "the operator's certificate has expired");
  }
  if (!envelope) {
    send(*session, protocol::Bye{envelope.error().code(), envelope.error().message()});
    end(session, envelope.error());
    return false;
  }
  if (const auto* ping = std::get_if<protocol::Ping>(&envelope->message)) {
    send(*session, protocol::Pong{ping->nonce});
  } else if (const auto* request = std::get_if<protocol::OperatorRequest>(&envelope->message)) {
    start(*session, *request, envelope->payload.view());
    pump(session);
  } else if (std::holds_alternative<protocol::Bye>(envelope->message)) {
    end(session, retry("bye", "the operator said goodbye"));
  }
  if (session->failure) end(session, *session->failure);
  return !session->closing;
}

void OperatorSessions::start(Session& session, const protocol::OperatorRequest& request,
                             ByteView payload) {
  Answer answer = overloaded("too-many-requests", "too many requests are under way already");
  if (session.requests.size() < options_.requests_max) {
    answer = respond_(request.command, {session.name, request.arguments, as_text(payload)});
  }
  if (answer) return session.requests.push_back({request.id, std::move(*answer)}), void();
  send(session, failed_reply(request.id, answer.error()));
}

void OperatorSessions::send(Session& session, protocol::Message message, SharedBytes payload) {
  if (session.failure) return;
  const auto sent = link::send(*session.connection, {std::move(message), std::move(payload)});
  if (!sent) session.failure = sent.error();
}

OperatorSessions::Step OperatorSessions::step(Session& session, Request& request) {
  Result<SharedBytes> piece = SharedBytes();
  if (!request.answer->done()) piece = request.answer->next();
  protocol::OperatorReply reply{.id = request.id, .last = !piece || request.answer->done()};
  if (!piece) {
    reply = failed_reply(request.id, piece.error());
    piece = SharedBytes();
  }
  if (!reply.last && piece->empty()) return Step::kWait;
  const bool last = reply.last;
  send(session, std::move(reply), std::move(*piece));
  return last ? Step::kEnd : Step::kMore;
}

void OperatorSessions::pump(const SessionPtr& session) {
  if (session->closing || std::exchange(session->pumping, true)) return;
  auto request = session->requests.begin();
  while (request != session->requests.end() && !session->failure &&
         session->connection->queued_bytes() < kQueuedBytesMax) {
    const Step step = this->step(*session, *request);
    if (step == Step::kWait) ++request;
    if (step == Step::kEnd) request = session->requests.erase(request);
  }
  session->pumping = false;
  if (session->failure) end(session, *session->failure);
}

std::optional<TimePoint> OperatorSessions::heard_at(const std::string& name) const {
  std::optional<TimePoint> last;
  for (const SessionPtr& session : sessions_) {
    if (session->name == name) last = std::max(last, std::optional(session->heard_at));
  }
  return last;
}

void OperatorSessions::wake() {
  const auto sessions = sessions_;
  for (const SessionPtr& session : sessions) pump(session);
}

void OperatorSessions::cut(const std::string& name) {
  const auto sessions = sessions_;
  for (const SessionPtr& session : sessions) {
    if (session->name == name) {
      end(session, not_authorised("certificate-revoked", "the operator was revoked"));
    }
  }
}

void OperatorSessions::end(const SessionPtr& session, const Error& reason) {
  if (std::exchange(session->closing, true)) return;
  log_.debug("operator {} disconnected ({}): {}", session->name, reason.code(), reason.message());
  session->connection->set_drain_handler(nullptr);
  session->requests.clear();
  std::erase(sessions_, session);
  const bool revoked = reason.code() == "certificate-revoked";
  const Duration goodbye =
      revoked ? std::min(options_.goodbye, kGoodbyeOfRevoked) : options_.goodbye;
  tasks_.spawn(finish(session, loop_.now() + goodbye));
}

net::Async<void> OperatorSessions::stop() {
  const Error reason = retry("draining", "the coordinator is stopping");
  const auto sessions = sessions_;
  for (const SessionPtr& session : sessions) {
    for (const Request& request : session->requests) {
      send(*session, failed_reply(request.id, reason));
    }
    end(session, reason);
  }
  tasks_.refuse();
  co_await tasks_.wait();
}

}  // namespace starling::coordinator

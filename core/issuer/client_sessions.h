// SPDX-License-Identifier: Apache-2.0
// The connections of devices and peers to whoever issues their work, a coordinator or the launcher
// of a network: frames in, messages out; messages in, frames out. Decides nothing but the limits of
// a connection.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/line_budget.h"
#include "core/base/log.h"
#include "core/link/message_link.h"
#include "core/net/event_loop.h"
#include "core/net/frame_budget.h"
#include "core/net/refusal_log.h"
#include "core/net/task_group.h"
#include "core/protocol/session_links.h"

namespace starling::issuer {

class ClientSessions final : public protocol::SessionLinks {
 public:
  struct Options {
    std::size_t sessions_max = 20'000;
    std::size_t per_client_max = 4;
    // Frames that are read of one client, on all its connections; see net/frame_budget.h.
    double frames_per_second = 2000;
    Duration goodbye = std::chrono::seconds(2);
  };
  struct Handlers {
    std::function<void(SessionId, const std::string& client)> on_opened;
    // The payload holds for the call only.
    std::function<void(SessionId, protocol::Envelope)> on_message;
    std::function<void(SessionId)> on_closed;  // once, from whatever side
  };

  // Whether the holder of this certificate may have a session now; asked once its handshake is
  // over.
  using Admit =
      std::function<Result<void>(const identity::Identity&, const identity::Certificate&)>;

  // All references must outlive the sessions. Handlers may call back.
  ClientSessions(net::EventLoop& loop, const Clock& clock, Log& log, Admit admit, Options options,
                 Handlers handlers);

  // Takes a connection whose peer() is a device or peer; drops it with a Bye where a limit is
  // reached or it is not admitted.
  void add(std::unique_ptr<net::Connection> connection);
  void send(SessionId session, const protocol::Envelope& envelope) override;
  // What is queued is still sent, for as long as the goodbye may take.
  void close(SessionId session, const std::string& code, const std::string& message) override;
  std::size_t size() const { return sessions_.size(); }
  bool is_open(SessionId session) const override { return sessions_.contains(session); }
  std::size_t queued_bytes(SessionId session) const;  // that wait to be sent; 0 of none

  // Closes all and resumes when every connection is gone.
  net::Async<void> stop();

 private:
  // Kept when its last session ends: whoever connects again goes on with what it had left.
  struct Client {
    std::size_t sessions = 0;  // that are not closing
    net::FrameBudget budget;
    LineBudget lines = {};  // of its connections
  };
  struct Session {
    SessionId id;
    std::string client;
    net::FrameBudget& budget;
    WallTime expires;  // its certificate
    std::unique_ptr<net::Connection> connection;
    link::MessageLimits limits;
    bool is_logged = true;  // its end gets a line as its beginning did
    bool closing = false;
    bool slowed = false;
  };
  using SessionPtr = std::shared_ptr<Session>;

  net::Async<void> read(SessionPtr session);
  net::Async<void> finish(std::unique_ptr<net::Connection> connection, TimePoint deadline);
  net::Async<void> finish_session(SessionPtr session, TimePoint deadline);
  // False: the session is over.
  bool take(const SessionPtr& session, const net::Frame& frame);
  static void say_goodbye(Session& session, const Error& reason);
  void end(const SessionPtr& session, const Error& reason);
  Result<protocol::Envelope> open(const Session& session, const net::Frame& frame) const;
  void turn_away(std::unique_ptr<net::Connection> connection, const Error& reason);
  Result<void> check(const net::Connection& connection) const;
  Duration pause_after(Session& session, const net::Frame& frame);

  net::EventLoop& loop_;
  const Clock& clock_;
  Log& log_;
  Admit admit_;
  Options options_;
  Handlers handlers_;
  std::map<SessionId, SessionPtr> sessions_;  // those that are not closing
  std::map<std::string, Client> clients_;  // that were admitted; as many as there are certificates
  std::uint64_t last_id_ = 0;
  net::RefusalLog refusals_;
  net::TaskGroup tasks_;
};

}  // namespace starling::issuer

// SPDX-License-Identifier: Apache-2.0
// The connections of operators: requests in, answers out piece by piece. What a request means is
// for others; here are the limits, the order and the pace.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/service/client_registry.h"
#include "coordinator/service/operator_answer.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/link/message_link.h"
#include "core/net/event_loop.h"
#include "core/net/frame_budget.h"
#include "core/net/refusal_log.h"
#include "core/net/task_group.h"

namespace starling::coordinator {

class OperatorSessions {
 public:
  struct Options {
    std::size_t sessions_max = 64;
    std::size_t requests_max = 16;  // under way on one connection
    // That are read of one operator, on all its connections; see net/frame_budget.h.
    double frames_per_second = 2000;
    Duration goodbye = std::chrono::seconds(2);
  };
  using Respond = std::function<Answer(const std::string& command, const OperatorCall& call)>;
  using OnOpened = std::function<void(const std::string& name)>;

  // All references must outlive the sessions.
  OperatorSessions(net::EventLoop& loop, const Clock& clock, const ClientRegistry& registry,
                   Log& log, Options options, Respond respond, OnOpened on_opened);

  void add(std::unique_ptr<net::Connection> connection);
  // Of an operator that is connected.
  std::optional<TimePoint> heard_at(const std::string& name) const;
  // There may be more to send for answers that had nothing.
  void wake();
  // Closes the sessions of an operator who was revoked.
  void cut(const std::string& name);
  // Ends answers under way with "draining", closes all, resumes when every connection is gone.
  net::Async<void> stop();

 private:
  struct Request {
    std::uint64_t id;
    std::unique_ptr<OperatorAnswer> answer;
  };
  struct Session {
    std::string name;
    net::FrameBudget& budget;
    WallTime expires;
    TimePoint heard_at;
    std::unique_ptr<net::Connection> connection;
    link::MessageLimits limits;
    std::list<Request> requests;
    std::optional<Error> failure;  // of a send
    bool pumping = false;
    bool closing = false;
  };
  using SessionPtr = std::shared_ptr<Session>;

  net::Async<void> read(SessionPtr session);
  net::Async<void> finish(SessionPtr session, TimePoint deadline);
  bool take(const SessionPtr& session, const net::Frame& frame);
  void start(Session& session, const protocol::OperatorRequest& request, ByteView payload);
  void pump(const SessionPtr& session);
  enum class Step { kMore, kWait, kEnd };
  Step step(Session& session, Request& request);
  void send(Session& session, protocol::Message message, SharedBytes payload = {});
  void end(const SessionPtr& session, const Error& reason);

  net::EventLoop& loop_;
  const Clock& clock_;
  const ClientRegistry& registry_;
  Log& log_;
  Options options_;
  Respond respond_;
  OnOpened on_opened_;
  std::vector<SessionPtr> sessions_;
  std::map<std::string, net::FrameBudget> budgets_;  // of all that ever had a session, by name
  net::RefusalLog refusals_;
  net::TaskGroup tasks_;
};

}  // namespace starling::coordinator

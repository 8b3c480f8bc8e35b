// SPDX-License-Identifier: Apache-2.0
// The admitted clients of a coordinator: their sessions, when they were last connected, what they
// announced in their greeting, and the tasks that they have. Decides when a session is over; of
// runs it knows nothing, of tasks only that a client works on one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/machine/coordinator_events.h"
#include "coordinator/machine/turn.h"
#include "core/base/deadlines.h"

namespace starling::coordinator {

class ClientTable {
 public:
  struct Client {
    std::optional<SessionId> session;  // greeted
    TimePoint away_since{};
    bool said_goodbye = false;  // when it left: its program was stopped, no link broke
    bool seen = false;          // by this or an earlier process
    bool greeted = false;       // by this process: `greeting` is what it is today
    Greeting greeting;          // its last one
    // The first one is at work. Others wait: of phases that were open at a restart, one may want
    // again what another had already.
    std::vector<TaskId> tasks;
  };
  struct Session {
    std::string client;
    bool greeted = false;
    TimePoint opened_at{};
    TimePoint heard_at{};
  };
  // A client came or went; called after the table has changed.
  struct Watcher {
    std::function<void(const std::string& name, const Client&)> came;
    std::function<void(const std::string& name, const Client&)> went_away;
    std::function<void(const std::string& name)> revoked;
    std::function<void(const std::string& name, TaskId next)> turn_came;  // of a task that waited
  };

  // All must outlive the table.
  ClientTable(const CoordinatorOptions& options, Turn& turn, Watcher watcher);

  void handle(const ClientAdmitted& event);
  void handle(const ClientRevoked& event);
  void handle(const SessionOpened& event);
  void handle(const SessionClosed& event) { leave(event.session, false); }
  void greet(SessionId id, const protocol::Hello& hello);
  // Closes the sessions that said nothing for too long.
  void close_silent();
  void close_all(const std::string& code, const std::string& message);
  // Says goodbye and closes.
  void refuse(SessionId id, const std::string& code, const std::string& message);
  // Closes a session whose client said goodbye.
  void dismiss(SessionId id);

  // Null where it was closed from this side.
  Session* find_session(SessionId id);
  const Client* find(const std::string& name) const;
  const std::map<std::string, Client>& all() const { return clients_; }  // in order of name
  // The data that clients announced in their last greeting.
  struct AnnouncedShape {
    std::vector<std::uint32_t> input;  // of a row; empty: not said
    std::uint32_t classes;
    auto operator<=>(const AnnouncedShape&) const = default;
  };
  // How many clients announced each.
  const std::map<AnnouncedShape, std::size_t>& shapes() const { return shapes_; }
  // What decides which runs a client can do.
  struct Announced {
    std::vector<std::string> abilities;
    AnnouncedShape shape;
    auto operator<=>(const Announced&) const = default;
  };
  struct Present {
    std::size_t connected = 0;
    std::size_t free = 0;  // of them, not at work
  };
  // How many connected clients announced each.
  const std::map<Announced, Present>& connected_as() const { return connected_as_; }
  bool connected(const std::string& name) const;
  std::optional<TimePoint> heard_at(const std::string& name) const;
  std::size_t size() const { return clients_.size(); }
  std::size_t count_connected() const { return connected_; }
  std::size_t count_connected_at_work() const { return connected_at_work_; }
  std::optional<TimePoint> next_deadline() const { return due_.next(); }
  // Grows whenever who could be asked for something may have changed.
  std::uint64_t version() const { return tasks_version_ + presence_version_; }
  // Grows whenever a client is admitted, revoked, comes or goes, or is given up while it is away;
  // not with the tasks of one that is here.
  std::uint64_t presence_version() const { return presence_version_; }

  // Requires: the client is admitted.
  void assign(const std::string& name, TaskId task);
  // The task is settled, or its result is not wanted any more.
  void release(const std::string& name, TaskId task);
  bool is_at_work_on(const std::string& name, TaskId task) const;
  void send_to(const std::string& name, protocol::Message message);

  // How many clients and sessions were looked at.
  std::uint64_t work() const { return work_; }

 private:
  TimePoint deadline_of(const Session& session) const;
  void leave(SessionId id, bool said_goodbye);
  void set_greeting(Client& client, Greeting greeting);
  void forget_shape(const Greeting& greeting);

  const CoordinatorOptions& options_;
  Turn& turn_;
  Watcher watcher_;
  std::map<SessionId, Session> sessions_;
  Deadlines<SessionId> due_;  // not later than the session's deadline
  std::map<std::string, Client> clients_;
  std::map<AnnouncedShape, std::size_t> shapes_;
  std::map<Announced, Present> connected_as_;
  std::size_t connected_ = 0;
  std::size_t connected_at_work_ = 0;
  std::uint64_t presence_version_ = 1;
  std::uint64_t tasks_version_ = 0;
  std::uint64_t work_ = 0;
};

}  // namespace starling::coordinator

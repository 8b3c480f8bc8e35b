// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"

namespace starling::coordinator {
namespace {

Greeting greeting_of(const protocol::Hello& hello) {
  Greeting greeting{hello.rows, hello.abilities, hello.input, hello.classes, hello.held_out};
  std::ranges::sort(greeting.abilities);
  return greeting;
}

ClientTable::Announced announced(const Greeting& greeting) {
  return {greeting.abilities, {greeting.input, greeting.classes}};
}

}  // namespace

ClientTable::ClientTable(const CoordinatorOptions& options, Turn& turn, Watcher watcher)
    : options_(options), turn_(turn), watcher_(std::move(watcher)) {}

void ClientTable::handle(const ClientAdmitted& event) {
  ++presence_version_;
  const auto [found, is_new] = clients_.try_emplace(event.client);
  Client& client = found->second;
  if (is_new) ++shapes_[{}];
  client.seen = client.seen || event.seen_before;
  if (!client.greeted) set_greeting(client, event.greeting);
  client.away_since = turn_.now;
  if (!client.session) watcher_.went_away(event.client, client);
}

void ClientTable::handle(const ClientRevoked& event) {
  ++presence_version_;
  work_ += sessions_.size();
  std::vector<SessionId> sessions;
  for (const auto& [id, session] : sessions_) {
    if (session.client == event.client) sessions.push_back(id);
  }
  for (const SessionId id : sessions) {
    refuse(id, "certificate-revoked", "the operator revoked the client " + event.client);
  }
  watcher_.revoked(event.client);
  const auto client = clients_.extract(event.client);
  if (client) forget_shape(client.mapped().greeting);
}

void ClientTable::handle(const SessionOpened& event) {
  STARLING_CHECK(!sessions_.contains(event.session));
  const Session session{.client = event.client, .opened_at = turn_.now, .heard_at = turn_.now};
  due_.set(event.session, deadline_of(session));
  sessions_[event.session] = session;
}

TimePoint ClientTable::deadline_of(const Session& session) const {
  return session.greeted ? session.heard_at + options_.silence_max
                         : session.opened_at + options_.greeting_deadline;
}

void ClientTable::greet(SessionId id, const protocol::Hello& hello) {
  Session& session = sessions_.at(id);
  if (session.greeted) return;  // a repetition
  if (hello.version_min > protocol::kVersion || hello.version_max < protocol::kVersion) {
    return refuse(
        id, "version",
        fmt::format("this coordinator speaks protocol version {}; {} speaks {} to {}",
                    protocol::kVersion, session.client, hello.version_min, hello.version_max));
  }
  const auto found = clients_.find(session.client);
  if (found == clients_.end()) {
    return refuse(id, "certificate-revoked", "this client is not admitted any more");
  }
  session.greeted = true;
  due_.set(id, deadline_of(session));
  const auto earlier = found->second.session;
  if (earlier && *earlier != id) {  // a new connection of the same identity replaces a dead one
    refuse(*earlier, "replaced", "another connection of the same client took over");
  }
  Client& client = found->second;
  client.session = id;
  client.seen = true;
  client.greeted = true;
  client.said_goodbye = false;
  set_greeting(client, greeting_of(hello));
  ++connected_;
  Present& present = connected_as_[announced(client.greeting)];
  ++present.connected;
  if (client.tasks.empty()) {
    ++present.free;
  } else {
    ++connected_at_work_;
  }
  ++presence_version_;
  // A preflight says nothing of the device: what it said before stands.
  const bool says_nothing = client.greeting == Greeting();
  turn_.act(
      ClientSeen{session.client, says_nothing ? std::nullopt : std::optional(client.greeting)});
  turn_.send(id, protocol::Welcome{.version = protocol::kVersion,
                                   .federation = options_.federation,
                                   .client = session.client,
                                   .heartbeat = options_.heartbeat,
                                   .reads_sparse = true});
  watcher_.came(found->first, client);
}

void ClientTable::set_greeting(Client& client, Greeting greeting) {
  forget_shape(client.greeting);
  client.greeting = std::move(greeting);
  ++shapes_[{client.greeting.input, client.greeting.classes}];
}

void ClientTable::forget_shape(const Greeting& greeting) {
  const auto found = shapes_.find({greeting.input, greeting.classes});
  if (--found->second == 0) shapes_.erase(found);
}

void ClientTable::leave(SessionId id, bool said_goodbye) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const std::string name = found->second.client;
  sessions_.erase(found);
  due_.clear(id);
  const auto client = clients_.find(name);
  if (client == clients_.end() || client->second.session != id) return;
  client->second.session.reset();
  client->second.away_since = turn_.now;
  client->second.said_goodbye = said_goodbye;
  --connected_;
  const auto as = connected_as_.find(announced(client->second.greeting));
  if (client->second.tasks.empty()) {
    --as->second.free;
  } else {
    --connected_at_work_;
  }
  if (--as->second.connected == 0) connected_as_.erase(as);
  ++presence_version_;
  turn_.act(ClientSeen{name, std::nullopt});
  watcher_.went_away(name, client->second);
}

void ClientTable::refuse(SessionId id, const std::string& code, const std::string& message) {
  turn_.send(id, protocol::Bye{code, message});
  turn_.act(CloseSession{id, code, message});
  leave(id, false);
}

void ClientTable::dismiss(SessionId id) {
  turn_.act(CloseSession{id, "bye", "the client said goodbye"});
  leave(id, true);
}

// Hearing from a session only moves its deadline further away, which is noted here, when the one
// that was noted before has come.
void ClientTable::close_silent() {
  std::vector<std::pair<SessionId, Error>> dead;
  for (const SessionId id : due_.take_due(turn_.now)) {
    ++work_;
    const Session& session = sessions_.at(id);
    if (turn_.now < deadline_of(session)) {
      due_.set(id, deadline_of(session));
    } else if (session.greeted) {
      dead.emplace_back(id, retry("silent", fmt::format("nothing was heard for {}",
                                                        format_duration(options_.silence_max))));
    } else {
      dead.emplace_back(id, timed_out("deadline", "no Hello came within the deadline"));
    }
  }
  for (const auto& [id, reason] : dead) refuse(id, reason.code(), reason.message());
}

void ClientTable::close_all(const std::string& code, const std::string& message) {
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId id : ids) refuse(id, code, message);
}

ClientTable::Session* ClientTable::find_session(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

const ClientTable::Client* ClientTable::find(const std::string& name) const {
  const auto found = clients_.find(name);
  return found == clients_.end() ? nullptr : &found->second;
}

bool ClientTable::connected(const std::string& name) const {
  const Client* client = find(name);
  return client != nullptr && client->session.has_value();
}

std::optional<TimePoint> ClientTable::heard_at(const std::string& name) const {
  const Client* client = find(name);
  if (client == nullptr || !client->session) return std::nullopt;
  return sessions_.at(*client->session).heard_at;
}

void ClientTable::assign(const std::string& name, TaskId task) {
  Client& client = clients_.at(name);
  client.tasks.push_back(task);
  if (client.tasks.size() > 1) return;
  ++tasks_version_;
  if (!client.session) return;
  ++connected_at_work_;
  --connected_as_.at(announced(client.greeting)).free;
}

void ClientTable::release(const std::string& name, TaskId task) {
  const auto found = clients_.find(name);
  if (found == clients_.end()) return;
  Client& client = found->second;
  const auto at = std::ranges::find(client.tasks, task);
  if (at == client.tasks.end()) return;
  const bool was_at_work = at == client.tasks.begin();
  client.tasks.erase(at);
  ++tasks_version_;
  if (client.tasks.empty()) {
    if (!client.session) {
      ++presence_version_;
      return;
    }
    --connected_at_work_;
    ++connected_as_.at(announced(client.greeting)).free;
  } else if (was_at_work) {
    watcher_.turn_came(name, client.tasks.front());
  }
}

bool ClientTable::is_at_work_on(const std::string& name, TaskId task) const {
  const Client* client = find(name);
  return client != nullptr && !client->tasks.empty() && client->tasks.front() == task;
}

void ClientTable::send_to(const std::string& name, protocol::Message message) {
  const Client* client = find(name);
  if (client != nullptr && client->session) turn_.send(*client->session, std::move(message));
}

}  // namespace starling::coordinator

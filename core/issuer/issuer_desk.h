// SPDX-License-Identifier: Apache-2.0
// What the issuer of a gossip network's roster says to the devices connected to it: hands out the
// roster, collects reports and models, and relays between two members neither of whom can be
// dialled. Envelopes in, envelopes out; sessions are somebody else's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/identity/roster.h"
#include "core/issuer/relay_pairs.h"
#include "core/protocol/messages.h"
#include "core/protocol/transfer.h"

namespace starling::issuer {

class IssuerDesk {
 public:
  struct Options {
    std::uint64_t window_bytes = 1024 * 1024;             // of a model that is handed in
    std::uint64_t open_model_bytes_max = 1 << 30;         // of all models that are coming in
    std::size_t relay_queue_bytes_max = 2 * 1024 * 1024;  // waiting for one receiver
    RelayPairs::Limits relay_pairs = {};
  };
  struct Handlers {
    // May end with closed() of that session.
    std::function<void(SessionId, const protocol::Envelope&)> send;
    std::function<std::size_t(SessionId)> queued_bytes;  // that wait to be sent
    std::function<void(const std::string& member, const protocol::PeerReport&)> on_report;
    // Whether this model may come, of exactly so many floats. The member is told why not.
    std::function<Result<void>(const std::string& member, const protocol::WholeModel&)> wants_model;
    // `values`: little-endian floats, all finite.
    std::function<void(const std::string& member, protocol::Exchange, SharedBytes values)> on_model;
  };

  // `log` must outlive the desk.
  IssuerDesk(Options options, Handlers handlers, Log& log);

  // Makes this the roster, and sends it to the connected ones that it or the one before names, or
  // that are left out; "roster-old" where it is not newer.
  [[nodiscard]] Result<void> publish(identity::SignedRoster roster);
  // None until the first is published.
  const std::optional<identity::SignedRoster>& roster() const { return roster_; }

  // A session whose greeting is over, of the client that its certificate names. A second one of
  // the same client replaces the first. A member is sent the roster at once.
  void opened(SessionId session, const std::string& name);
  void closed(SessionId session);
  bool is_connected(const std::string& name) const { return members_.contains(name); }
  // Clients that could have been members. They are sent the roster as members are: from its lack of
  // them they know that the run goes on without them.
  void set_left_out(std::set<std::string> names);

  // Whether take() is to have this message: RosterAsk, PeerReport, Relay, VectorTransfer, or a
  // Chunk of the model that this session hands in.
  bool is_mine(SessionId session, const protocol::Message& message) const;
  // Requires: is_mine(). The payload need hold for the call only. An error says why the session is
  // to be closed.
  [[nodiscard]] Result<void> take(SessionId session, const protocol::Envelope& envelope);

 private:
  struct HandIn {
    TaskId transfer;
    protocol::WholeModel model;
    protocol::ModelAssembler assembler;
  };
  struct Member {
    SessionId session;
    std::optional<HandIn> hand_in;
  };

  bool is_listed(const std::string& name) const;
  bool is_told(const std::string& name) const;  // of the roster
  const identity::RosterMember* undialled(const std::string& name) const;
  void send_roster(SessionId session, const protocol::RosterAsk& ask);

  Result<void> receive(const std::string& name, const protocol::RosterAsk& ask);
  Result<void> receive(const std::string& name, const protocol::PeerReport& report);
  Result<void> receive(const std::string& name, const protocol::Relay& relay,
                       const SharedBytes& payload);
  Result<void> receive(const std::string& name, const protocol::VectorTransfer& transfer);
  Result<void> receive(const std::string& name, const protocol::Chunk& chunk,
                       const SharedBytes& payload);

  Result<void> may_hand_in(const std::string& name, const protocol::WholeModel& model) const;
  std::uint64_t open_model_bytes() const;
  void finish_hand_in(const std::string& name);
  // "" where this frame may pass; else the code of the goodbye. A greeting opens a pair.
  std::string relay_problem(const std::string& from, const protocol::Relay& relay);
  bool begin_relay(const std::string& from, const std::string& to);
  // Ends, at `to`, the link that runs through here from `peer`.
  void say_away(const std::string& to, const std::string& peer, const std::string& code);
  void send(const std::string& name, const protocol::Message& message, SharedBytes payload = {});

  Options options_;
  Handlers handlers_;
  Log& log_;
  std::optional<identity::SignedRoster> roster_;
  std::set<std::string> left_out_;
  std::map<std::string, Member> members_;      // who is connected
  std::map<SessionId, std::string> sessions_;  // of members_ only
  RelayPairs relayed_;  // open links; both ends are connected and cannot be dialled
};

}  // namespace starling::issuer

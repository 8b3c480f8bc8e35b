// SPDX-License-Identifier: Apache-2.0
#include "core/issuer/issuer_desk.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/issuer/roster_parts.h"
#include "core/linalg/kernels.h"
#include "core/link/relayed_frame.h"
#include "core/wire/frame_type.h"

namespace starling::issuer {
namespace {

std::span<const float> as_floats(ByteView bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

bool is(const protocol::Relay& relay, wire::FrameType type) {
  return relay.type == static_cast<std::uint16_t>(type);
}

// What outlives the frame that brought it.
SharedBytes owned(const SharedBytes& bytes) {
  return bytes.owner() || bytes.empty() ? bytes : SharedBytes::own(to_bytes(bytes.view()));
}

std::string sentence_of(const std::string& code, const std::string& peer) {
  if (code == "peer-away") return peer + " is not connected to the issuer that relays";
  if (code == "not-relayed") return "the issuer does not relay to " + peer;
  if (code == "no-link") return "the issuer relays no link with " + peer + "; greet first";
  return "the issuer that relays has no room for more between you and " + peer;
}

}  // namespace

IssuerDesk::IssuerDesk(Options options, Handlers handlers, Log& log)
    : options_(options), handlers_(std::move(handlers)), log_(log), relayed_(options.relay_pairs) {}

// --- the roster ---------------------------------------------------------------------------------

Result<void> IssuerDesk::publish(identity::SignedRoster roster) {
  if (roster_ && !roster.roster().newer_than(roster_->roster())) {
    return rejected("roster-old", fmt::format("a roster of epoch {} is published already",
                                              roster_->roster().epoch));
  }
  const std::optional<identity::SignedRoster> before = std::move(roster_);
  roster_ = std::move(roster);
  relayed_.keep([this](const std::string& name) { return undialled(name) != nullptr; });
  std::vector<SessionId> to;
  for (auto& [name, member] : members_) {
    if (!is_listed(name)) member.hand_in.reset();
    if (is_told(name) || (before && before->roster().find(name))) to.push_back(member.session);
  }
  for (const SessionId session : to) send_roster(session, {});
  return {};
}

void IssuerDesk::send_roster(SessionId session, const protocol::RosterAsk& ask) {
  for (const protocol::Envelope& part : roster_parts(*roster_, ask)) {
    if (!sessions_.contains(session)) return;  // it broke off meanwhile
    handlers_.send(session, part);
  }
}

bool IssuerDesk::is_listed(const std::string& name) const {
  return roster_ && roster_->roster().find(name).has_value();
}

bool IssuerDesk::is_told(const std::string& name) const {
  return is_listed(name) || (roster_ && left_out_.contains(name));
}

void IssuerDesk::set_left_out(std::set<std::string> names) {
  std::swap(left_out_, names);
  std::vector<SessionId> to;
  for (const auto& [name, member] : members_) {
    const bool is_news = is_told(name) && !is_listed(name) && !names.contains(name);
    if (is_news) to.push_back(member.session);
  }
  for (const SessionId session : to) send_roster(session, {});
}

Result<void> IssuerDesk::receive(const std::string& name, const protocol::RosterAsk& ask) {
  if (is_told(name)) send_roster(members_.at(name).session, ask);
  return {};
}

// --- sessions -----------------------------------------------------------------------------------

void IssuerDesk::opened(SessionId session, const std::string& name) {
  // What the earlier session carried is lost: the other ends of its relayed links hear of it.
  if (const auto earlier = members_.find(name); earlier != members_.end()) {
    closed(earlier->second.session);
  }
  members_[name] = Member{.session = session, .hand_in = {}};
  sessions_[session] = name;
  if (is_told(name)) send_roster(session, {});
}

void IssuerDesk::closed(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const std::string name = found->second;
  sessions_.erase(found);
  members_.erase(name);
  for (const std::string& other : relayed_.erase(name)) say_away(other, name, "peer-away");
}

bool IssuerDesk::is_mine(SessionId session, const protocol::Message& message) const {
  if (const auto* chunk = std::get_if<protocol::Chunk>(&message)) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return false;
    const Member& member = members_.at(found->second);
    return member.hand_in && member.hand_in->transfer == chunk->task;
  }
  return std::holds_alternative<protocol::RosterAsk>(message) ||
         std::holds_alternative<protocol::PeerReport>(message) ||
         std::holds_alternative<protocol::Relay>(message) ||
         std::holds_alternative<protocol::VectorTransfer>(message);
}

Result<void> IssuerDesk::take(SessionId session, const protocol::Envelope& envelope) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};  // replaced by a newer one
  const std::string name = found->second;
  const protocol::Message& message = envelope.message;
  if (const auto* ask = std::get_if<protocol::RosterAsk>(&message)) return receive(name, *ask);
  if (const auto* report = std::get_if<protocol::PeerReport>(&message)) {
    return receive(name, *report);
  }
  if (const auto* relay = std::get_if<protocol::Relay>(&message)) {
    return receive(name, *relay, envelope.payload);
  }
  if (const auto* transfer = std::get_if<protocol::VectorTransfer>(&message))
    return receive(name, *transfer);
  const auto* chunk = std::get_if<protocol::Chunk>(&message);
  STARLING_CHECK(chunk != nullptr);
  return receive(name, *chunk, envelope.payload);
}

void IssuerDesk::send(const std::string& name, const protocol::Message& message,
                      SharedBytes payload) {
  const auto found = members_.find(name);
  if (found == members_.end()) return;
  const SessionId session = found->second.session;
  handlers_.send(session, {message, std::move(payload)});
}

Result<void> IssuerDesk::receive(const std::string& name, const protocol::PeerReport& report) {
  if (is_listed(name)) handlers_.on_report(name, report);
  return {};
}

// --- relaying -----------------------------------------------------------------------------------

const identity::RosterMember* IssuerDesk::undialled(const std::string& name) const {
  if (!roster_) return nullptr;
  const auto index = roster_->roster().find(name);
  if (!index) return nullptr;
  const identity::RosterMember& member = roster_->roster().members[*index];
  return member.address.empty() ? &member : nullptr;
}

bool IssuerDesk::begin_relay(const std::string& from, const std::string& to) {
  if (!relayed_.insert(from, to)) return false;
  log_.info("relaying between {} and {}: neither can be dialled", std::min(from, to),
            std::max(from, to));
  return true;
}

std::string IssuerDesk::relay_problem(const std::string& from, const protocol::Relay& relay) {
  const std::string& to = relay.peer;
  if (from == to || !undialled(from) || !undialled(to)) return "not-relayed";
  const auto receiver = members_.find(to);
  if (receiver == members_.end()) return "peer-away";
  const bool open = relayed_.contains(from, to);
  if (!open && !is(relay, wire::FrameType::kPeerHello)) return "no-link";
  const std::size_t waiting = handlers_.queued_bytes(receiver->second.session);
  if (waiting > options_.relay_queue_bytes_max) return "relay-full";
  return open || begin_relay(from, to) ? "" : "relay-full";
}

Result<void> IssuerDesk::receive(const std::string& name, const protocol::Relay& relay,
                                 const SharedBytes& payload) {
  const std::string problem = relay_problem(name, relay);
  if (problem.empty()) {
    protocol::Relay passed = relay;
    passed.peer = name;
    send(relay.peer, passed, owned(payload));
    return {};
  }
  // A frame that is lost breaks the stream, so both ends hear that it is over: the receiver, for
  // whom too much waits already, once for each link. A goodbye is never answered.
  if (!is(relay, wire::FrameType::kBye)) say_away(name, relay.peer, problem);
  if (relayed_.erase(name, relay.peer)) say_away(relay.peer, name, problem);
  return {};
}

void IssuerDesk::say_away(const std::string& to, const std::string& peer, const std::string& code) {
  const auto relay = link::to_relay(peer, protocol::Bye{code, sentence_of(code, peer)});
  STARLING_CHECK(relay.has_value());
  send(to, *relay);
}

// --- models that are handed in ------------------------------------------------------------------

std::uint64_t IssuerDesk::open_model_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, member] : members_) {
    if (member.hand_in) sum += member.hand_in->model.floats * sizeof(float);
  }
  return sum;
}

Result<void> IssuerDesk::may_hand_in(const std::string& name,
                                     const protocol::WholeModel& model) const {
  if (!is_listed(name)) {
    return rejected("not-a-member", name + " is not a member of the network");
  }
  STARLING_TRY(handlers_.wants_model(name, model));
  const std::uint64_t open = open_model_bytes();
  if (open == 0 || open + model.floats * sizeof(float) <= options_.open_model_bytes_max) {
    return {};
  }
  return overloaded("too-many-models", "the issuer takes no more models at once; try again later");
}

Result<void> IssuerDesk::receive(const std::string& name,
                                 const protocol::VectorTransfer& transfer) {
  const auto* const model = std::get_if<protocol::WholeModel>(&transfer.content);
  if (model == nullptr || model->floats == 0) {
    return rejected("bad-message", "an issuer takes nothing but whole models");
  }
  std::optional<HandIn>& hand_in = members_.at(name).hand_in;
  hand_in.reset();
  if (const auto allowed = may_hand_in(name, *model); !allowed) {
    const Error& why = allowed.error();
    send(name, protocol::TaskEnded{transfer.id, why.code(), why.message()});
    return {};
  }
  const std::uint64_t bytes = model->floats * sizeof(float);
  hand_in.emplace(transfer.id, *model, protocol::ModelAssembler(bytes, options_.window_bytes));
  const std::uint64_t limit = hand_in->assembler.receiver().tell_limit();
  send(name, protocol::Credit{transfer.id, limit});
  return {};
}

Result<void> IssuerDesk::receive(const std::string& name, const protocol::Chunk& chunk,
                                 const SharedBytes& payload) {
  std::optional<HandIn>& hand_in = members_.at(name).hand_in;
  STARLING_CHECK(hand_in.has_value());
  STARLING_TRY(hand_in->assembler.take(chunk.offset, payload));
  protocol::TransferReceiver& receiver = hand_in->assembler.receiver();
  if (receiver.done()) {
    finish_hand_in(name);
  } else if (const auto limit = receiver.credit_due()) {
    send(name, protocol::Credit{chunk.task, *limit});
  }
  return {};
}

void IssuerDesk::finish_hand_in(const std::string& name) {
  HandIn done = std::move(*std::exchange(members_.at(name).hand_in, std::nullopt));
  const SharedBytes values = std::move(done.assembler).finish();
  const std::span<const float> floats = as_floats(values.view());
  if (!linalg::default_kernels().all_finite(floats.data(), floats.size())) {
    return send(name, protocol::TaskEnded{done.transfer, "not-finite",
                                          "the model holds a value that is not finite"});
  }
  send(name, protocol::UpdateReceived{done.transfer});
  handlers_.on_model(name, done.model.exchange, values);
}

}  // namespace starling::issuer

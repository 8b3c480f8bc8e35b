// SPDX-License-Identifier: Apache-2.0
// The links that the issuer relays. A stream of frames between two begins with a PeerHello each way
// and ends with a Bye, which the issuer says for whoever breaks off. Either may begin; two hellos
// that cross make one link.
#include <algorithm>

#include "core/wire/frame_type.h"
#include "gossip/peer/peer_links.h"

namespace starling::gossip {
namespace {

bool is(const protocol::Relay& relay, wire::FrameType type) {
  return relay.type == static_cast<std::uint16_t>(type);
}

}  // namespace

void PeerLinks::issuer_up() {
  line_.open();
  for (auto& [name, dialling] : diallings_) {
    const auto member = member_of(name);
    if (!member || !is_relayed(*member)) continue;
    dialling.backoff.reset();
    dialling.not_before = {};
  }
  consider();
}

void PeerLinks::issuer_down() {
  line_.close();
  for (const LinkPtr& link : all_links()) {
    if (link->relay)
      end(link, not_connected("issuer-away", "the issuer that relays is away"), false);
  }
}

void PeerLinks::issuer_drained() {
  if (!line_.is_open()) return;
  line_.flush();
  pump_relayed();
  consider();
}

PeerLinks::LinkPtr PeerLinks::relayed_with(const std::string& name) const {
  const auto found = links_.find(name);
  if (found != links_.end() && found->second->relay) return found->second;
  const auto greeting = std::ranges::find_if(
      greeting_, [&](const LinkPtr& link) { return link->relay && link->name == name; });
  return greeting == greeting_.end() ? nullptr : *greeting;
}

PeerLinks::LinkPtr PeerLinks::begin_relayed(const std::string& name, bool by_us) {
  auto channel = std::make_shared<RelayChannel>(line_, name);
  RelayChannel* const relay = channel.get();
  const LinkPtr link = begin(name, std::move(channel), by_us, options_.relay_window_bytes);
  link->relay = relay;
  return link;
}

void PeerLinks::take_relayed(const protocol::Relay& relay, const SharedBytes& payload) {
  if (stopping_ || !line_.is_open()) return;
  if (const LinkPtr present = relayed_with(relay.peer)) return take_on(present, relay, payload);
  if (is(relay, wire::FrameType::kBye)) return;
  if (const auto admitted = admit(relay.peer, std::nullopt); !admitted) {
    return refuse_relayed(relay.peer, admitted.error());
  }
  if (!is(relay, wire::FrameType::kPeerHello)) {
    return refuse_relayed(relay.peer, retry("no-link", "there is no link: greet first"));
  }
  take_on(begin_relayed(relay.peer, false), relay, payload);
}

void PeerLinks::take_on(const LinkPtr& link, const protocol::Relay& relay,
                        const SharedBytes& payload) {
  const bool begins = is(relay, wire::FrameType::kPeerHello) || is(relay, wire::FrameType::kBye);
  // Of the link before this one, whose end the other side had not heard of.
  if (!link->hello && !begins) return;
  const auto envelope = link->relay->receive(relay, payload, link->limits);
  if (!envelope) return end(link, envelope.error(), true);
  // The issuer's link is everybody's: it goes on being read, and this one ends.
  const net::Frame frame{.type = relay.type, .header = relay.header, .payload = payload.view()};
  if (charge(link->name, frame) > Duration::zero()) {
    return end(link, overloaded("too-many-frames", link->name + " sends too many frames"), true);
  }
  take(link, *envelope);
}

// A goodbye is never answered, so two that disagree do not go on for ever; nor is anything while
// the line is full.
void PeerLinks::refuse_relayed(const std::string& name, const Error& reason) {
  if (!line_.has_room()) return;
  const auto sent = line_.send(name, {protocol::Bye{reason.code(), reason.message()}, {}});
  if (!sent) world_.log.debug("cannot answer {}: {}", name, sent.error().message());
}

void PeerLinks::expire_greetings() {
  std::vector<LinkPtr> late;
  for (const LinkPtr& link : greeting_) {
    const TimePoint deadline = link->since + options_.greeting_deadline;
    if (link->relay && deadline <= world_.loop.now()) late.push_back(link);
  }
  for (const LinkPtr& link : late) {
    end(link, timed_out("deadline", link->name + " did not greet"), true);
  }
}

// A link that was lost is not begun anew at once: whoever relays had a reason.
void PeerLinks::put_off(const std::string& name) {
  Dialling& dialling = dialling_of(name);
  dialling.not_before = world_.loop.now() + dialling.backoff.next();
}

// One frame each in turn, from the one after the last: none has the line for itself.
void PeerLinks::pump_relayed() {
  std::vector<LinkPtr> turn;
  for (const auto& [name, link] : links_) {
    if (link->relay) turn.push_back(link);
  }
  const auto next = std::ranges::upper_bound(turn, last_pumped_, {}, &Link::name);
  std::ranges::rotate(turn, next);
  while (!turn.empty() && line_.has_room()) {
    const LinkPtr link = turn.front();
    const auto envelope = link->flow.next();
    if (envelope) {
      send_on(link, *envelope);
      last_pumped_ = link->name;
      std::ranges::rotate(turn, turn.begin() + 1);
    } else {
      turn.erase(turn.begin());
    }
  }
}

}  // namespace starling::gossip

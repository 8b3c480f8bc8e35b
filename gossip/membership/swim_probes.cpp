// SPDX-License-Identifier: Apache-2.0
// Probing: direct pings, pings through others, and pings for others.
#include <algorithm>

#include "gossip/membership/swim_machine.h"

namespace starling::gossip::membership {

using protocol::Swim;

Duration SwimMachine::probe_timeout(Member member) const {
  const RoundTrip& measured = peers_[member].round_trip;
  const Duration timeout = measured.learned() ? measured.timeout() : options_.probe_timeout_first;
  return slowed(std::clamp(timeout, options_.probe_timeout_min, options_.probe_timeout_max));
}

TimePoint SwimMachine::next_dead_probe() {
  return now_ + from_seconds(rng_.uniform(0.5, 1.5) * to_seconds(options_.dead_probe_period));
}

void SwimMachine::probe_next() {
  for (std::size_t turn = 0; turn < order_.size(); ++turn) {
    if (place_ == order_.size()) {
      place_ = 0;
      rng_.shuffle(std::span(order_));
    }
    const Member member = order_[place_++];
    const Peer& peer = peers_[member];
    if (peer.state == State::kDead || peer.probe.stage != Probe::Stage::kNone) continue;
    probe(member);
    return;
  }
}

void SwimMachine::probe_next_dead() {
  for (std::size_t turn = 0; turn < dead_order_.size(); ++turn) {
    const Member member = dead_order_[dead_place_++ % dead_order_.size()];
    const Peer& peer = peers_[member];
    if (peer.state != State::kDead || peer.probe.stage != Probe::Stage::kNone) continue;
    probe(member);
    return;
  }
}

// One at a time of each member, so that neither losses nor messages can pile up probes.
void SwimMachine::probe(Member member, bool directly) {
  Peer& peer = peers_[member];
  Probe& probe = peer.probe;
  if (probe.stage == Probe::Stage::kNone) {
    const Duration timeout = probe_timeout(member);
    probe.stage = Probe::Stage::kDirect;
    probe.of_dead = peer.state == State::kDead;
    probe.unanswered = directly;
    probe.sequence = sequence_++;
    probe.began = now_;
    probe.fails = now_ + std::max(slowed(options_.probe_period), 3 * timeout);
    probes_.set(member, now_ + timeout);
    if (directly) send(member, Swim::Kind::kPing, probe.sequence, member);
  }
  if (!directly && probe.stage == Probe::Stage::kDirect) {
    probe.unanswered = false;  // nothing that was sent can bring an answer
    advance_probe(member);
  }
}

void SwimMachine::advance_probe(Member member) {
  Peer& peer = peers_[member];
  if (peer.probe.stage == Probe::Stage::kDirect && !peer.probe.of_dead) {
    ask_helpers(member);
    // With nobody to ask, an answer may still come to a ping.
    if (!peer.probe.helpers.empty() || peer.probe.unanswered) {
      peer.probe.stage = Probe::Stage::kIndirect;
      probes_.set(member, peer.probe.fails);
      return;
    }
  }
  const bool in_silence = peer.probe.unanswered && (!heard_ || *heard_ < peer.probe.began);
  end_probe(member);
  peer.silent = is_neighbour(member);
  if (peer.state == State::kDead) return;
  if (in_silence) worsen();
  accuse(member, self_);
}

// The next ones from a random place of the shuffled order that are alive.
void SwimMachine::ask_helpers(Member member) {
  if (beats_) return;  // they would make links for it; heartbeats come by others in any case
  Probe& probe = peers_[member].probe;
  std::size_t place = static_cast<std::size_t>(rng_.below(order_.size()));
  for (std::size_t turn = 0; turn < order_.size(); ++turn, ++place) {
    if (probe.helpers.size() == options_.indirect_probes) break;
    const Member helper = order_[place % order_.size()];
    if (helper == member || peers_[helper].state != State::kAlive) continue;
    probe.helpers.push_back(helper);
    send(helper, Swim::Kind::kPingRequest, probe.sequence, member);
  }
}

void SwimMachine::end_probe(Member member) {
  Probe& probe = peers_[member].probe;
  probe.stage = Probe::Stage::kNone;
  probe.helpers.clear();
  probes_.clear(member);
}

void SwimMachine::answered(Member member) {
  Peer& peer = peers_[member];
  peer.heard = now_;
  if (health_ > 0) --health_;
  if (peer.probe.of_dead) dead_probe_at_ = now_;
  end_probe(member);
}

void SwimMachine::relay_ping(Member requester, const Swim& request) {
  if (beats_) return;
  Peer& peer = peers_[requester];
  if (!is_other(request.target) || request.target == requester) return;
  if (peer.relays == kRelaysMax) return;
  ++peer.relays;
  // All last equally long, so that they end in the order of their sequence.
  const TimePoint ends = now_ + 3 * options_.probe_timeout_max;
  relays_.emplace(sequence_, Relay{requester, request.target, request.sequence, ends});
  send(request.target, Swim::Kind::kPing, sequence_++, request.target);
}

void SwimMachine::receive_ack(Member from, const Swim& ack) {
  if (const auto relay = relays_.find(ack.sequence);
      relay != relays_.end() && relay->second.target == from) {
    --peers_[relay->second.requester].relays;
    send(relay->second.requester, Swim::Kind::kAck, relay->second.sequence, from);
    relays_.erase(relay);
    return;
  }
  if (!is_other(ack.target)) return;
  Peer& peer = peers_[ack.target];
  Probe& probe = peer.probe;
  if (probe.sequence != ack.sequence) return;
  const bool running = probe.stage != Probe::Stage::kNone;
  if (from == ack.target) {
    // Also after the probe has failed: so a slow member is given more time.
    if (probe.unanswered && probe.sequence >= sequence_measured_) {
      peer.round_trip.learn(now_ - probe.began);
    }
    probe.unanswered = false;
    if (running) answered(ack.target);
  } else if (running && std::ranges::find(probe.helpers, from) != probe.helpers.end()) {
    answered(ack.target);
  }
}

// Direct evidence. It is not news: who is called suspect must say so itself, to all.
void SwimMachine::hear(Member member) {
  Peer& peer = peers_[member];
  heard_ = peer.heard = now_;
  peer.silent = false;
  if (peer.state != State::kAlive) {
    probe(member);
  } else if (peer.probe.stage != Probe::Stage::kNone) {
    end_probe(member);
  }
}

// Evidence by hearsay, of those who say it to each other as well.
void SwimMachine::hear_beats(const std::vector<std::uint64_t>& beats) {
  for (const Member member : beats_->take(beats, now_)) {
    Peer& peer = peers_[member];
    if (peer.silent) continue;
    peer.heard = now_;
    if (peer.state != State::kAlive) {
      news_.add(member);
    } else if (peer.probe.stage == Probe::Stage::kIndirect && !is_neighbour(member)) {
      answered(member);
    }
  }
}

void SwimMachine::suspect_the_silent() {
  for (const Member member : dead_order_) {
    const bool is_silent = beats_->risen(member) + kSilence * options_.probe_period < now_;
    if (is_silent && peers_[member].state != State::kDead) accuse(member, self_);
  }
}

void SwimMachine::choose_watched() {
  order_ =
      overlay_->watched([this](Member member) { return peers_[member].state == State::kDead; });
  place_ = 0;
}

}  // namespace starling::gossip::membership

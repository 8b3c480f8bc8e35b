// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/swim_machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"

namespace starling::gossip::membership {
namespace {

// More than a wire's message holds is not read.
constexpr std::size_t kNewsReadMax = 64;

unsigned transmissions(const SwimOptions& options, Member members) {
  return static_cast<unsigned>(std::ceil(options.dissemination * std::log(members + 1.0)));
}

}  // namespace

SwimMachine::SwimMachine(const SwimOptions& options, protocol::Epoch epoch, Member self,
                         Member members, Rng rng, TimePoint now, std::optional<Overlay> overlay)
    : options_(options),
      epoch_(epoch),
      self_(self),
      suspicion_times_(SuspicionTimes::of(options, members)),
      rng_(rng),
      now_(now),
      overlay_(std::move(overlay)),
      peers_(members),
      news_(members, transmissions(options, members)),
      sequence_(rng_.next_u64() >> 1),
      sequence_measured_(sequence_),
      probes_(members),
      suspicions_(members) {
  STARLING_CHECK(validate(options) && self < members);
  for (Member member = 0; member < members; ++member) {
    peers_[member].by = member;
    if (member != self) dead_order_.push_back(member);
  }
  rng_.shuffle(std::span(dead_order_));
  order_ = dead_order_;
  if (overlay_) {
    beats_.emplace(self, members, now);
    choose_watched();
  }
  // Not all at once when a roster's members start together.
  probe_at_ = now_ + from_seconds(rng_.uniform() * to_seconds(options_.probe_period));
}

std::vector<Action> SwimMachine::on(const Event& event, TimePoint now) {
  actions_.clear();
  if (peers_.size() < 2) return {};
  notice_lateness(now);
  std::visit([this](const auto& it) { handle(it); }, event);
  return std::exchange(actions_, {});
}

void SwimMachine::notice_lateness(TimePoint now) {
  const TimePoint due = *next_due();
  const TimePoint time = now - lost_;
  if (time - due < options_.late_min) {
    now_ = std::max(now_, time);
    return;
  }
  now_ = std::max(now_, due - options_.probe_period);
  lost_ = now - now_;
  sequence_measured_ = sequence_;
  worsen();
}

std::optional<TimePoint> SwimMachine::next_due() const {
  if (peers_.size() < 2) return std::nullopt;
  TimePoint next = probe_at_;
  if (dead_ > 0) next = std::min(next, dead_probe_at_);
  if (const auto probe = probes_.next()) next = std::min(next, *probe);
  if (const auto suspicion = suspicions_.next()) next = std::min(next, *suspicion);
  if (!relays_.empty()) next = std::min(next, relays_.begin()->second.ends);
  return next;
}

std::optional<TimePoint> SwimMachine::next_deadline() const {
  auto next = next_due();
  if (next) *next += lost_;
  return next;
}

void SwimMachine::handle(const Tick&) {
  while (const auto member = probes_.pop(now_)) advance_probe(*member);
  while (const auto member = suspicions_.pop(now_)) suspicion_ends(*member);
  while (!relays_.empty() && relays_.begin()->second.ends <= now_) {
    --peers_[relays_.begin()->second.requester].relays;
    relays_.erase(relays_.begin());
  }
  if (now_ >= probe_at_) {
    if (beats_) {
      beats_->beat();
      suspect_the_silent();
    }
    const std::size_t probes = beats_ ? std::min(order_.size(), kProbesMax) : 1;
    for (std::size_t i = 0; i < probes; ++i) probe_next();
    probe_at_ = now_ + options_.probe_period;
  }
  if (dead_ > 0 && now_ >= dead_probe_at_) {
    probe_next_dead();
    dead_probe_at_ = next_dead_probe();
  }
}

void SwimMachine::handle(const Received& received) {
  const auto& [from, swim] = received;
  if (!is_other(from) || swim.epoch != epoch_) return;
  const std::size_t count = std::min(swim.news.size(), kNewsReadMax);
  for (std::size_t i = 0; i < count; ++i) learn(from, swim.news[i]);
  if (beats_) hear_beats(swim.beats);
  switch (swim.kind) {
    case protocol::Swim::Kind::kPing:
      send(from, protocol::Swim::Kind::kAck, swim.sequence, self_);
      break;
    case protocol::Swim::Kind::kAck:
      receive_ack(from, swim);
      break;
    case protocol::Swim::Kind::kPingRequest:
      relay_ping(from, swim);
      break;
  }
  hear(from);
}

void SwimMachine::handle(const Heard& heard) {
  if (is_other(heard.member)) hear(heard.member);
}

void SwimMachine::handle(const LinkLost& lost) {
  if (!is_other(lost.member) || peers_[lost.member].state == State::kDead) return;
  if (!beats_) return probe(lost.member, false);
  // Nobody can be asked in its place; the ping finds another link, or none.
  if (std::ranges::find(order_, lost.member) != order_.end()) probe(lost.member);
}

std::size_t SwimMachine::entries() const {
  std::size_t count = news_.size() + relays_.size();
  for (const Peer& peer : peers_) count += peer.probe.helpers.size();
  return count;
}

}  // namespace starling::gossip::membership

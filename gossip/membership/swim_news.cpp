// SPDX-License-Identifier: Apache-2.0
// What is told of members: what of it is believed, and what is told on.
#include <algorithm>
#include <utility>

#include "gossip/membership/swim_machine.h"

namespace starling::gossip::membership {

using protocol::SwimNews;

void SwimMachine::learn(Member from, const SwimNews& news) {
  if (news.member >= peers_.size() || news.by >= peers_.size()) return;
  if (news.incarnation > kIncarnationMax || news.state > State::kDead) return;
  if (news.member == self_) {
    learn_of_self(news);
  } else if (news.state == State::kAlive) {
    learn_alive(from, news);
  } else {
    learn_accusation(news);
  }
}

// Every message bears one's own incarnation, so a refutation needs no place in the queue.
void SwimMachine::learn_of_self(const SwimNews& news) {
  Peer& self = peers_[self_];
  if (news.state == State::kAlive) {  // of an earlier process, at a higher incarnation
    self.incarnation = std::max(self.incarnation, news.incarnation);
  } else if (news.incarnation >= self.incarnation) {
    self.incarnation = std::min(news.incarnation + 1, kIncarnationMax);
    worsen();
  }
}

void SwimMachine::learn_alive(Member from, const SwimNews& news) {
  Peer& peer = peers_[news.member];
  const bool first_hand = from == news.member;
  if (peer.silent && !first_hand) return;
  const bool newer = news.incarnation > peer.incarnation &&
                     (first_hand || news.incarnation - peer.incarnation <= kIncarnationJumpMax);
  const bool last_word = first_hand && news.incarnation == kIncarnationMax &&
                         peer.incarnation == kIncarnationMax && peer.state != State::kAlive;
  if (!newer && !last_word) return;
  peer.incarnation = news.incarnation;
  set_state(news.member, State::kAlive, news.member);
}

void SwimMachine::learn_accusation(const SwimNews& news) {
  Peer& peer = peers_[news.member];
  if (news.by == news.member || news.incarnation == kIncarnationMax) return;
  if (news.incarnation < peer.incarnation) return news_.add(news.member);  // it is refuted
  if (news.incarnation - peer.incarnation > kIncarnationJumpMax) return;
  const bool newer = news.incarnation > peer.incarnation;
  if (peer.silent && newer) return;
  if (peer.state == State::kDead) {
    if (!newer) return;
    peer.incarnation = news.incarnation;
    set_state(news.member, news.state, news.by);
    return;
  }
  if (newer) {
    peer.incarnation = news.incarnation;
    set_state(news.member, State::kSuspect, news.by);
  } else {
    accuse(news.member, news.by);
  }
}

// Of its present incarnation.
void SwimMachine::accuse(Member member, Member by) {
  Peer& peer = peers_[member];
  if (peer.state == State::kAlive) {
    set_state(member, State::kSuspect, by);
  } else if (peer.suspicion && peer.suspicion->confirm(by, suspicion_times_)) {
    peer.by = by;
    news_.add(member);
    suspicions_.set(member, peer.suspicion->began() + peer.suspicion->lasts(suspicion_times_));
  }
}

void SwimMachine::suspicion_ends(Member member) {
  Peer& peer = peers_[member];
  const Duration lasts = peer.suspicion->lasts(suspicion_times_);
  if (peer.heard && *peer.heard + lasts > now_ && *peer.heard > peer.suspicion->began()) {
    suspicions_.set(member, *peer.heard + lasts);
  } else {
    set_state(member, State::kDead, self_);
  }
}

void SwimMachine::set_state(Member member, State state, Member by) {
  Peer& peer = peers_[member];
  const State before = std::exchange(peer.state, state);
  peer.by = by;
  news_.add(member);
  peer.suspicion.reset();
  suspicions_.clear(member);
  if (state == State::kSuspect) {
    peer.suspicion.emplace(by, now_);
    suspicions_.set(member, now_ + peer.suspicion->lasts(suspicion_times_));
  }
  if (state == before) return;
  if (before == State::kDead) --dead_;
  if (state == State::kDead && dead_++ == 0) dead_probe_at_ = next_dead_probe();
  if (overlay_ && (before == State::kDead || state == State::kDead)) choose_watched();
  actions_.emplace_back(Changed{member, state});
}

SwimNews SwimMachine::news_of(Member member) const {
  const Peer& peer = peers_[member];
  return {member, peer.state, peer.incarnation, peer.by};
}

void SwimMachine::send(Member to, protocol::Swim::Kind kind, std::uint64_t sequence,
                       Member target) {
  protocol::Swim swim{.kind = kind, .epoch = epoch_, .sequence = sequence, .target = target};
  const bool accused = peers_[to].state != State::kAlive;
  const bool accused_target = target != to && peers_[target].state != State::kAlive;
  const std::size_t first = 1U + accused + accused_target;
  const auto others = news_.take(options_.news_max - first, to);
  swim.news.reserve(first + others.size());
  swim.news.push_back(news_of(self_));
  if (accused) swim.news.push_back(news_of(to));
  if (accused_target) swim.news.push_back(news_of(target));
  for (const Member member : others) swim.news.push_back(news_of(member));
  if (beats_) swim.beats = beats_->counts();
  actions_.emplace_back(Send{to, std::move(swim)});
}

}  // namespace starling::gossip::membership

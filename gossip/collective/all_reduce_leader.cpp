// SPDX-License-Identifier: Apache-2.0
// The leader's half of the machine: hear everybody, decide what is reduced among whom, commit.
#include <fmt/format.h>

#include <algorithm>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

using Kind = protocol::ReduceNote::Kind;

namespace {

// A broken link is replaced by another within this, or it is lost.
constexpr Duration kRelink = std::chrono::milliseconds(200);
constexpr Duration kUnsureAgain = std::chrono::seconds(2);  // who flaps is not waited for each time

}  // namespace

void AllReduceMachine::lead(Attempt attempt, bool recovering) {
  for (const Peer& peer : peers_) {  // what followers promised to us, perhaps before we led
    const bool mine = peer.begun == current_->at && peer.attempt != 0 &&
                      owner(peer.attempt) == self_ && is_plausible(peer.attempt);
    if (mine) attempt = std::max(attempt, peer.attempt);
  }
  promise(attempt);
  current_->lead = Lead{};
  current_->lead->attempt = attempt;
  current_->lead->recovering = recovering;
  for (Peer& peer : peers_) peer.done = false;
}

bool AllReduceMachine::is_late() const { return now_ >= current_->first_at + arrivals_.duration(); }

void AllReduceMachine::be_unsure(Peer& peer) const {
  if (peer.unsure_since && now_ < *peer.unsure_since + kUnsureAgain) return;
  peer.unsure = true;
  peer.unsure_since = now_;
}

TimePoint AllReduceMachine::unsure_until() const {
  TimePoint until{};
  for (const Peer& peer : peers_) {
    if (peer.unsure) until = std::max(until, *peer.unsure_since + kRelink);
  }
  return until;
}

bool AllReduceMachine::has_answered(Member member) const {
  const Peer& peer = peers_[member];
  return peer.begun == current_->at && peer.attempt == current_->lead->attempt;
}

void AllReduceMachine::ask_missing() {
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m == self_ || !is_reachable(m) || has_answered(m)) continue;
    if (peers_[m].asked == current_->lead->attempt) continue;
    peers_[m].asked = current_->lead->attempt;
    send(m, Kind::kAsk, current_->at, current_->lead->attempt);
  }
}

// Nobody tells a leader that the exchange it leads was ended without it: its followers went on.
void AllReduceMachine::ask_ahead(Member member) {
  if (!current_ || !current_->lead || !is_reachable(member)) return;
  const Peer& peer = peers_[member];
  if (!peer.begun || *peer.begun <= current_->at) return;
  send(member, Kind::kAsk, current_->at, current_->lead->attempt);
}

// Everybody reachable has to have spoken under this very attempt: that he has begun, and then takes
// part in nothing earlier any more; or, once it is late, that he has not begun.
void AllReduceMachine::consider() {
  if (!current_ || !current_->lead) return;
  const Lead& lead = *current_->lead;
  if (lead.stage != Lead::Stage::kGathering) return;
  const bool late = is_late();
  if (lead.recovering || late) ask_missing();
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m == self_ || !is_reachable(m) || has_answered(m) || peers_[m].elsewhere) continue;
    const Peer& peer = peers_[m];
    const bool declined = peer.begun != current_->at && late && peer.not_yet == current_->at &&
                          peer.not_yet_attempt == lead.attempt;
    if (!declined) return;
  }
  if (now_ < unsure_until()) return;
  if (!lead.recovering && !late) arrivals_.learn(now_ - current_->first_at);
  decide();
}

void AllReduceMachine::decide() {
  Current& c = *current_;
  Attempt best = c.held.attempt;
  Want fetch{.purpose = Want::For::kLead};
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m == self_ || !is_reachable(m) || !has_answered(m) || peers_[m].held <= best) continue;
    best = peers_[m].held;
    fetch.from = m;
    fetch.attempt = best;
    fetch.members = peers_[m].members;
  }
  if (best == 0) {
    Members members = choose();
    c.lead->stage = Lead::Stage::kRunning;
    c.lead->awaited = members;
    std::erase(c.lead->awaited, self_);
    announce(c.lead->awaited, members, 0);
    join(c.lead->attempt, std::move(members));
  } else if (best == c.held.attempt) {
    let_stand(best);
  } else {
    c.lead->stage = Lead::Stage::kFetching;
    want(std::move(fetch));
  }
}

// A mean that somebody holds may have been committed by somebody who is gone: it stands, and is
// committed only when everybody holds it, as any other.
void AllReduceMachine::let_stand(Attempt attempt) {
  Current& c = *current_;
  c.joined = c.lead->attempt;
  c.lead->stage = Lead::Stage::kRunning;
  c.lead->awaited.clear();
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m != self_ && is_reachable(m) && has_answered(m)) c.lead->awaited.push_back(m);
  }
  say(LogLevel::kInfo, fmt::format("exchange {}: the mean of attempt {} over {} members stands",
                                   c.at.exchange, attempt, c.held.members.size()));
  announce(c.lead->awaited, c.held.members, attempt);
  check_done();
}

// All who have answered, less as few as make every two of the rest reach each other: who lacks most
// others goes first, the highest among equals, never ourselves.
AllReduceMachine::Members AllReduceMachine::choose() const {
  Members members;
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m == self_ || (is_reachable(m) && has_answered(m))) members.push_back(m);
  }
  auto cut = [&](Member a, Member b) {
    auto lacks = [&](Member x, Member y) {
      return x != self_ && std::ranges::binary_search(peers_[x].members, y);
    };
    return lacks(a, b) || lacks(b, a);
  };
  while (true) {
    std::ptrdiff_t most = 0;
    Member worst = self_;
    for (Member a : members) {
      const auto cuts = std::ranges::count_if(members, [&](Member b) { return cut(a, b); });
      if (cuts == 0 || a == self_ || cuts < most) continue;
      most = cuts;
      worst = a;
    }
    if (most == 0) return members;
    std::erase(members, worst);
  }
}

void AllReduceMachine::announce(const Members& to, const Members& members, Attempt held) {
  for (Member m : to) {
    send(m, Kind::kAttempt, current_->at, current_->lead->attempt, held, members);
  }
}

void AllReduceMachine::receive_done(Member from, const protocol::ReduceNote& note) {
  if (!current_ || !current_->lead || progress_of(note) != current_->at) return;
  const Lead& lead = *current_->lead;
  if (lead.stage != Lead::Stage::kRunning || note.attempt != lead.attempt) return;
  peers_[from].done = true;
  check_done();
}

void AllReduceMachine::check_done() {
  Current& c = *current_;
  if (!c.lead || c.lead->stage != Lead::Stage::kRunning || c.run || c.held.attempt == 0) return;
  for (Member m : c.lead->awaited) {
    if (!peers_[m].done) return;
  }
  finish(std::move(c.held));
}

}  // namespace starling::collective

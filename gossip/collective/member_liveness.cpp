// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/member_liveness.h"

#include <algorithm>

namespace starling::collective {

using protocol::Member;

void MemberLiveness::heard(Member member, TimePoint now) {
  Peer& peer = peers_[member];
  peer = {.met = true, .asked_at = peer.asked_at, .heard_at = now};
}

void MemberLiveness::asked(Member member, TimePoint now) {
  if (!unanswered_since(member)) peers_[member].asked_at = now;
}

std::optional<TimePoint> MemberLiveness::unanswered_since(Member member) const {
  const Peer& peer = peers_[member];
  return peer.heard_at < peer.asked_at ? peer.asked_at : std::nullopt;
}

void MemberLiveness::pass_over(Member member, TimePoint from) {
  auto& passed_over_from = peers_[member].passed_over_from;
  passed_over_from = std::min(passed_over_from.value_or(from), from);
}

void MemberLiveness::call_silent(Member member, TimePoint now) {
  Peer& peer = peers_[member];
  if (member != self_ && !peer.silent_since) peer.silent_since = now;
}

void MemberLiveness::link_down(Member member, TimePoint now) {
  Peer& peer = peers_[member];
  if (peer.met && !peer.down_since) peer.down_since = now;
}

bool MemberLiveness::is_gone(Member member, TimePoint now) const {
  const auto& down = peers_[member].down_since;
  return down && now >= *down + kRelink;
}

bool MemberLiveness::is_lost(Member member, TimePoint now) const {
  return peers_[member].silent_since || is_passed_over(member, now) || is_gone(member, now);
}

std::optional<TimePoint> MemberLiveness::lost_at(Member member) const {
  const Peer& peer = peers_[member];
  if (peer.silent_since) return peer.silent_since;
  if (peer.passed_over_from || !peer.down_since) return peer.passed_over_from;
  return *peer.down_since + kRelink;
}

std::vector<Member> MemberLiveness::lost(TimePoint now) const {
  std::vector<Member> members;
  for (Member m = 0; m < peers_.size(); ++m) {
    if (is_lost(m, now)) members.push_back(m);
  }
  return members;
}

std::size_t MemberLiveness::heard_others() const {
  const auto there = std::ranges::count_if(peers_, [](const Peer& peer) {
    return !peer.silent_since && !peer.down_since && !peer.passed_over_from;
  });
  return static_cast<std::size_t>(there) - 1;  // without ourselves
}

TimePoint MemberLiveness::waits_until(Member member, TimePoint since, TimePoint until) const {
  const Peer& peer = peers_[member];
  if (peer.passed_over_from) return std::min(until, std::max(*peer.passed_over_from, since));
  return peer.down_since ? std::min(until, std::max(*peer.down_since, since) + kRelink) : until;
}

}  // namespace starling::collective

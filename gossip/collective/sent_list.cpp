// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/sent_list.h"

#include <algorithm>

namespace starling::collective {
namespace {

constexpr int kRunWaits = 4;  // a run whose members say nothing ends after so many waits

}  // namespace

reduce::What SentList::note(Member member, const Registration& its) const {
  if (!stands()) {
    reduce::List list{.members = mean.members, .weak = weak};
    if (apart && apart->first == member) list.apart = apart->second;
    return list;
  }
  const auto gives = std::ranges::find_if(holders, [&](Member m) {
    return !std::ranges::binary_search(its.lost, m) && !(its.blame && its.blame->member == m);
  });
  reduce::Standing standing{mean, gives == holders.end() ? holders.front() : *gives};
  standing.mean.weak = weak;
  return standing;
}

bool SentList::differs() const {
  if (!stands()) return awaited.empty() && done.size() > 1;
  return std::ranges::any_of(done, [&](const auto& its) { return its.first != mean.sha256; });
}

Members SentList::others(Member self) const {
  const auto followers = [self](const auto& its) {
    return std::pair(std::ranges::find(its.second, self) != its.second.end(), its.second.size());
  };
  const Sha256Digest agreed =
      stands() ? mean.sha256 : std::ranges::max_element(done, {}, followers)->first;
  Members others;
  for (const auto& [sha256, members] : done) {
    if (sha256 != agreed) others.insert(others.end(), members.begin(), members.end());
  }
  return others;
}

const std::pair<Member, Waited>* SentList::first_wait() const {
  const auto time = [](const auto& wait) { return std::uint64_t{wait.second.milliseconds}; };
  const auto longest = std::ranges::max_element(waits, {}, time);
  const std::pair<Member, Waited>* first = nullptr;
  for (const auto& wait : waits) {
    const bool is_long = 4 * time(wait) >= time(*longest);
    if (is_long && (first == nullptr || wait.second.piece < first->second.piece)) first = &wait;
  }
  return first;
}

// Once a member is done, the others are soon: sooner than it gives up. Of a lost one nothing comes.
TimePoint SentList::ends_at(Duration piece, const MemberLiveness& liveness) const {
  TimePoint end = progress_at + (is_any_done() ? 3 * piece / 4 : kRunWaits * piece);
  for (const Member m : awaited) end = liveness.waits_until(m, progress_at, end);
  return end;
}

}  // namespace starling::collective

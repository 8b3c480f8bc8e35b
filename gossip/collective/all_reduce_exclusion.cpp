// SPDX-License-Identifier: Apache-2.0
// Whom a gatherer leaves out of an exchange, because it holds another mean than it should, or none.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/list_some.h"
#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

// Who was in one reduction and says that it holds another mean: a liar, or one that a liar's pieces
// reached. Nothing of this attempt is committed; in the next one a mean that is held stands, and is
// named. Who holds another even then is left out, or who still differs after more lists.
void AllReduceMachine::settle_difference() {
  const SentList& list = *gather_->list;
  const auto followers = [&](const auto& means) {
    return std::pair(std::ranges::find(means.second, self_) != means.second.end(),
                     means.second.size());
  };
  const auto most = std::ranges::max_element(list.done, {}, followers);
  const bool stands = list.mean.attempt != 0;
  const Sha256Digest agreed = stands ? list.mean.sha256 : most->first;
  Members others;
  for (const auto& [sha256, members] : list.done) {
    if (sha256 != agreed) others.insert(others.end(), members.begin(), members.end());
  }
  if (differs_.is_due(now_)) {
    say(LogLevel::kWarning,
        fmt::format(
            "exchange {}, attempt {}: {} ended with another mean than the others: one member "
            "sends wrong numbers, and the exchange goes on with one mean",
            gather_->at.exchange, gather_->attempt,
            list_some(others, kNamedMax, [this](Member m) { return names_[m]; })));
  }
  if (stands || lists_of(gather_->at) >= kListsMax) {
    for (const Member m : others) exclude(m, "does not hold the mean that was named");
  }
  begin_again(self_);
}

// Who says that it holds the mean that stands, and does not give it. A single member that says so
// may be the cause itself.
bool AllReduceMachine::exclude_silent_holders(const Members& held_by) {
  if (lists_of(gather_->at) < kListsMax) return false;
  std::map<Member, Members> accusers;
  for (const auto& [member, registration] : gather_->registered.all()) {
    const auto& blame = registration.blame;
    if (blame && std::ranges::binary_search(held_by, blame->member)) {
      accusers[blame->member].push_back(member);
    }
  }
  const std::size_t before = gather_->registered.size();
  for (const auto& [holder, by] : accusers) {
    exclude(holder, "holds a mean, as it says, but gave it to nobody");
    if (by.size() == 1) exclude(by.front(), "alone waited in vain for a mean");
  }
  return gather_->registered.size() < before;
}

// From the exchange that is gathered. To count as not registered is safe for any member: those who
// are left need a majority for a mean that counts as backed.
void AllReduceMachine::exclude(Member member, std::string_view why) {
  if (member == self_ || !listed_.excluded.insert(member).second) return;
  gather_->registered.remove(member);
  if (!excludes_[member].is_due(now_)) return;
  say(LogLevel::kWarning,
      fmt::format("exchange {}: {} {}: it is left out", gather_->at.exchange, names_[member], why));
}

bool AllReduceMachine::is_excluded(Progress at, Member member) const {
  return listed_.at == at && listed_.excluded.contains(member);
}

}  // namespace starling::collective

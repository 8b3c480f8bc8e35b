// SPDX-License-Identifier: Apache-2.0
#include "core/net/arrival_slots.h"

#include <optional>
#include <tuple>

#include "core/net/address_share.h"

namespace starling::net {
namespace {

enum Progress { kSilent, kBegan, kAnswered };

Progress progress(const ConnectionCounters& counters) {
  if (counters.wire_bytes_in == 0) return kSilent;
  return counters.wire_bytes_out == 0 ? kBegan : kAnswered;
}

}  // namespace

std::size_t ArrivalSlots::held_by(const std::string& share) const {
  const auto found = held_.find(share);
  return found == held_.end() ? 0 : found->second;
}

// Whoever was answered has to answer in turn, over a slow link and on a slow processor. If those
// who say nothing were left alone as long, a few hundred of them a second from many addresses would
// fill all slots, and everybody else would wait in the kernel's backlog behind all that came
// before.
TimePoint ArrivalSlots::protected_until(const Slot& slot) const {
  const bool answered = progress(*slot.counters) == kAnswered;
  return slot.since + (answered ? options_.undisturbed : options_.undisturbed / 5);
}

ArrivalSlots::Verdict ArrivalSlots::verdict_on(const std::string& address, TimePoint now) const {
  const std::string share = address_share(address);
  const std::size_t own = held_by(share);
  const bool share_full =
      own >= options_.per_address_max && options_.per_address_max < options_.slots_max;
  if (!share_full && slots_.size() < options_.slots_max) return {};
  // Those whose addresses hold most come first, then those who had their time, then those who got
  // least far; of equals the oldest.
  using Rank = std::tuple<std::size_t, bool, int>;  // the greatest leaves
  std::optional<std::pair<Rank, Id>> worst;
  TimePoint until = TimePoint::max();
  for (const auto& [id, slot] : slots_) {
    if (share_full && slot.share != share) continue;
    const std::size_t held = held_by(slot.share);
    const bool had_time = now >= protected_until(slot);
    if (!had_time && held <= own + 1) {
      until = std::min(until, protected_until(slot));
      continue;
    }
    const Rank rank{held, had_time, -progress(*slot.counters)};
    if (!worst || rank > worst->first) worst = {rank, id};
  }
  if (worst) return {.answer = Answer::kEvict, .victim = worst->second};
  if (share_full) return {.answer = Answer::kRefuse};
  return {.answer = Answer::kWait, .until = until};
}

ArrivalSlots::Id ArrivalSlots::take(const std::string& address, const ConnectionCounters& counters,
                                    TimePoint now) {
  const Slot slot{.share = address_share(address), .counters = &counters, .since = now};
  ++held_[slot.share];
  slots_.emplace(++last_id_, slot);
  return last_id_;
}

bool ArrivalSlots::leave(Id id) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return false;
  const auto held = held_.find(found->second.share);
  if (--held->second == 0) held_.erase(held);
  slots_.erase(found);
  return true;
}

}  // namespace starling::net

// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/participation.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace starling::collective {
namespace {

// Of the piece that is to come after so many: from 1 on.
std::uint16_t piece_number(std::size_t step) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint16_t>::max();
  return static_cast<std::uint16_t>(std::min(1 + step, kMost));
}

}  // namespace

Participation::Participation(const Begin& begin, Member own, std::size_t count, TimePoint now)
    : self(own),
      members(count),
      at(begin.at),
      input(begin.input),
      distance_max(begin.distance_max),
      was_away(begin.was_away),
      begun_at(now),
      charged_until(now),
      bounds(count),
      early(input.values.size(), count),
      waits_since(now) {}

std::optional<Member> Participation::waiting_for() const {
  if (fetch) return fetch->holder;
  if (run) return run->members[run->reduction.waits_for()];
  if (promised == 0 || gatherer() == self) return std::nullopt;
  return gatherer();
}

bool Participation::holds(const Sha256Digest& sha256) const {
  return held.attempt != 0 && held.sha256 == sha256;
}

void Participation::wait(TimePoint now) {
  if (run || held.attempt == promised) longest_wait = std::max(longest_wait, now - waits_since);
  waits_since = now;
  has_resumed = false;
}

void Participation::resume(TimePoint now) {
  if (!std::exchange(has_resumed, true)) waits_since = now;
}

void Participation::note_wait(Member of, std::size_t step, TimePoint now) {
  const auto wait = std::chrono::floor<std::chrono::milliseconds>(now - waits_since).count();
  // Who waited for one that waited itself, for the first piece, waits for a later one too.
  if (std::cmp_less_equal(wait, waited ? 2 * std::uint64_t{waited->milliseconds} : 0)) return;
  constexpr std::int64_t kWaitMax = std::numeric_limits<std::uint32_t>::max();
  waited = Waited{.of = of,
                  .piece = piece_number(step),
                  .milliseconds = static_cast<std::uint32_t>(std::min(wait, kWaitMax))};
}

std::optional<TimePoint> Participation::gives_up_at(const Patience& patience,
                                                    const MemberLiveness& liveness) const {
  const auto member = waiting_for();
  if (!member) return std::nullopt;
  const bool is_starting = (run || !liveness.is_met(*member)) && !liveness.silent_since(*member);
  // Another was waited for in vain before: the gatherer may be the cause.
  const Duration for_list = blame ? patience.answer / 2 : patience.answer;
  Duration longest = patience.stretched(waits_for_list() ? for_list : patience.piece);
  if (is_starting) longest = std::max(longest, patience.start);
  return liveness.waits_until(*member, waits_since, waits_since + longest);
}

// Half a wait after it began, and again after the other half. A gatherer's heartbeats do not count:
// it may wait for silent members itself. An answer may take as long as a piece, since it waits
// behind pieces on a slow link.
TimePoint Participation::probes_at(const Patience& patience) const {
  const Duration half = patience.for_piece() / 2;
  if (probed_at) return *probed_at + half;
  const TimePoint since = waits_for_list() ? promised_at : waits_since;
  return std::max({since, begun_at, judged_at}) + half;
}

std::optional<Blame> Participation::blame_at(const Patience& patience,
                                             const MemberLiveness& liveness, TimePoint now) const {
  if (blame && blame->wrong) return blame;
  const auto member = waiting_for();
  if (!member || promised == 0 || held.attempt == promised) return blame;
  const Duration longest = run ? patience.piece : patience.answer;
  if (now < waits_since + longest / 2 && !liveness.is_lost(*member, now)) return blame;
  return Blame{*member, piece_number(run ? 1 + run->reduction.step() : 0)};
}

unsigned Participation::failed_max() const {
  unsigned most = 0;
  for (const auto& [gatherer, times] : failed) most = std::max(most, times);
  return most;
}

void Participation::leave_attempt() {
  run.reset();
  fetch.reset();  // what still comes of it must not undo what we report next
  sent.clear();
  early.clear();
}

}  // namespace starling::collective

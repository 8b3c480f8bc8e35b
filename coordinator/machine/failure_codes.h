// SPDX-License-Identifier: Apache-2.0
// The codes with which the coordinator ends tasks, and what a failure of a code says of its client.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/base/clock.h"
#include "core/client/client_machine.h"
#include "core/protocol/messages.h"

namespace starling::coordinator {

// A client's update waited for room in the coordinator's spool until the deadline.
inline constexpr std::string_view kNoRoom = "no-room";

// A client's update brought fewer bytes in such a time while others waited for its room, and was
// not whole in time.
inline constexpr std::string_view kUploadStalled = "upload-stalled";
inline constexpr Duration kProgressTime = std::chrono::seconds(10);
inline constexpr std::uint64_t kProgressBytes = 64 * 1024;

// An update starts from another model than its task names.
inline constexpr std::string_view kWrongBase = "wrong-base";

// Nothing whole came until the deadline.
inline constexpr std::string_view kDeadline = "deadline";

// A client stayed away for longer than the grace.
inline constexpr std::string_view kDisconnected = "disconnected";

// Whether a failure of this code says nothing of the client: it was not waited for any longer, not
// needed, or had no memory beside other runs. Other codes are of the client's own making; of an
// evaluation, which is short beside a training, also a missed deadline and an absence that
// outlasted the grace.
bool is_circumstance(std::string_view code, protocol::TaskKind kind);

// Whether a client of this failure kept its attempt waiting until the deadline or for the grace, or
// answered with an update of another model, as an honest one does once after a restore, or had no
// memory for it beside other runs.
// Going away is a miss too: a client that goes away in every round costs each of them the grace,
// and nothing tells it from one whose link is bad. Such an honest client still takes part: every
// update of its own ends its row, it is asked at once when it is back for the first time, and it is
// asked wherever a round could not do without it.
bool is_miss(std::string_view code);

// Such an attempt says nothing of its run.
template <class Failures>
bool lacked_room(const Failures& failures) {
  return std::ranges::any_of(failures, [](const auto& f) { return f.code == kNoRoom; });
}

// Whether an attempt of so many updates would have been committed but for clients whose memory
// other runs hold, which may end: it says nothing of its run either.
template <class Failures>
bool lacked_memory(const Failures& failures, std::size_t updates, std::size_t needed) {
  const auto refused = static_cast<std::size_t>(std::ranges::count_if(
      failures, [](const auto& f) { return f.code == client::kMemoryInUse; }));
  return refused > 0 && updates + refused >= needed;
}

}  // namespace starling::coordinator

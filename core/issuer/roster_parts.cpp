// SPDX-License-Identifier: Apache-2.0
#include "core/issuer/roster_parts.h"

#include <algorithm>
#include <utility>

namespace starling::issuer {
namespace {

std::uint64_t issued_ms(const identity::Roster& roster) {
  return static_cast<std::uint64_t>(roster.issued.time_since_epoch().count());
}

}  // namespace

protocol::RosterAsk ask_for_newer(const identity::Roster* held) {
  if (!held) return {};
  return {.epoch = held->epoch, .issued_ms = issued_ms(*held)};
}

std::vector<protocol::Envelope> roster_parts(const identity::SignedRoster& signed_roster,
                                             const protocol::RosterAsk& ask) {
  const identity::Roster& roster = signed_roster.roster();
  const std::uint64_t issued = issued_ms(roster);
  if (std::pair(roster.epoch, issued) <= std::pair(ask.epoch, ask.issued_ms)) return {};
  const SharedBytes& bytes = signed_roster.bytes();
  const std::uint64_t end = std::min<std::uint64_t>(bytes.size(), ask.offset + kRosterWindowBytes);
  std::vector<protocol::Envelope> parts;
  for (std::uint64_t offset = ask.offset; offset < end; offset += protocol::kChunkBytesMax) {
    const auto count = std::min<std::uint64_t>(protocol::kChunkBytesMax, end - offset);
    parts.push_back(
        {protocol::RosterPart{
             .epoch = roster.epoch, .offset = offset, .total = bytes.size(), .issued_ms = issued},
         bytes.slice(offset, count)});
  }
  return parts;
}

RosterAssembler::Version RosterAssembler::version_of(const identity::Roster* roster) {
  if (!roster) return {};
  return {roster->epoch, issued_ms(*roster)};
}

RosterAssembler::Taken RosterAssembler::take(const protocol::RosterPart& part, ByteView piece,
                                             const identity::Roster* held) {
  const Version version{part.epoch, part.issued_ms};
  if (version <= version_of(held) || part.total > identity::kRosterBytesMax) return {};
  if (part.offset == 0) {
    version_ = version;
    total_ = part.total;
    bytes_.clear();
  }
  if (version != version_ || part.total != total_ || part.offset != bytes_.size()) return {};
  if (piece.empty() || piece.size() > total_ - bytes_.size()) return {};
  const std::uint64_t window = bytes_.size() / kRosterWindowBytes;
  bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  if (bytes_.size() == total_) {
    version_ = {};
    total_ = 0;
    return {.whole = std::exchange(bytes_, {})};
  }
  if (bytes_.size() / kRosterWindowBytes == window) return {};
  protocol::RosterAsk ask = ask_for_newer(held);
  ask.offset = bytes_.size();
  return {.ask = ask};
}

}  // namespace starling::issuer

// SPDX-License-Identifier: Apache-2.0
// Pieces of an attempt whose list has not come yet: a neighbour may have it sooner.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "core/protocol/peer_messages.h"
#include "gossip/collective/floats.h"
#include "gossip/collective/reduce_shape.h"

namespace starling::collective {

class EarlyPieces {
 public:
  using Pieces = std::map<std::pair<protocol::Member, std::uint64_t>, Floats>;  // by sender, place

  // Of a reduction of so many floats among at most so many members. Keeps at most `floats` of each
  // sender: more cannot be early. What else comes changes nothing.
  EarlyPieces(std::size_t floats, std::size_t members) : floats_(floats), members_(members) {}

  // Of the first half of a ring, or the sender's own up the tree; no other can be early.
  void keep(protocol::Member from, std::uint64_t place, Floats piece) {
    const bool is_of_ring = place < place_of(Phase::kScatter, members_);
    const bool is_of_tree = place >= place_of(Phase::kUp, 0) &&
                            place < place_of(Phase::kUp, kTreeStepsMax) &&
                            piece.values.size() == floats_;
    if (piece.values.empty() || (!is_of_ring && !is_of_tree)) return;
    std::size_t kept = piece.values.size();
    for (const auto& [key, other] : pieces_) {
      if (key.first == from) kept += other.values.size();
    }
    if (kept <= floats_) pieces_.try_emplace({from, place}, std::move(piece));
  }
  // All of them, those of a sender in order of step; none are kept any more.
  Pieces take() { return std::exchange(pieces_, {}); }
  void clear() { pieces_.clear(); }
  std::size_t floats() const {
    std::size_t floats = 0;
    for (const auto& [key, piece] : pieces_) floats += piece.values.size();
    return floats;
  }

 private:
  static constexpr std::uint64_t kTreeStepsMax = 32;  // of members that are counted in 32 bits

  std::size_t floats_;
  std::size_t members_;
  Pieces pieces_;
};

}  // namespace starling::collective

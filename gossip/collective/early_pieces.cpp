// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/early_pieces.h"

#include "gossip/collective/reduce_shape.h"

namespace starling::collective {

using protocol::Member;

namespace {

constexpr std::uint64_t kTreeStepsMax = 32;  // of members that are counted in 32 bits

}  // namespace

// Those of the first half of a ring, or its own up the tree; anything else is not of the protocol.
void EarlyPieces::keep(Member from, std::uint64_t place, Floats piece) {
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

std::size_t EarlyPieces::floats() const {
  std::size_t floats = 0;
  for (const auto& [key, piece] : pieces_) floats += piece.values.size();
  return floats;
}

}  // namespace starling::collective

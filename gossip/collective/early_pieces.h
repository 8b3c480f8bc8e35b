// SPDX-License-Identifier: Apache-2.0
// Pieces of an attempt whose list has not come yet: a neighbour may have it sooner.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "core/protocol/peer_messages.h"
#include "gossip/collective/floats.h"

namespace starling::collective {

class EarlyPieces {
 public:
  using Pieces = std::map<std::pair<protocol::Member, std::uint64_t>, Floats>;  // by sender, place

  // Of a reduction of so many floats among at most so many members. Keeps at most `floats` of each
  // sender: more cannot be early. What else comes changes nothing.
  EarlyPieces(std::size_t floats, std::size_t members) : floats_(floats), members_(members) {}

  void keep(protocol::Member from, std::uint64_t place, Floats piece);
  // All of them, those of a sender in order of step; none are kept any more.
  Pieces take() { return std::exchange(pieces_, {}); }
  void clear() { pieces_.clear(); }
  std::size_t floats() const;

 private:
  std::size_t floats_;
  std::size_t members_;
  Pieces pieces_;
};

}  // namespace starling::collective

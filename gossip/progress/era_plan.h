// SPDX-License-Identifier: Apache-2.0
// When the state that neighbours share along edges starts again, everywhere at one exchange. Any
// member can ask for such a common beginning, and causes one when it comes and goes. After kFree
// beginnings within span() exchanges the next ones are at multiples of grid() only. These all
// members know, however many beginnings each of them has seen.
#pragma once

#include <deque>
#include <optional>
#include <set>

#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class EraPlan {
 public:
  static constexpr std::size_t kFree = 4;
  // An era that no two members share: of who is alone, and what is told to who is left out.
  static constexpr std::uint32_t kAlone = 0xFFFFFFFF;

  // The member for whose word or absence there would be another beginning too soon after others.
  // Told once of each.
  struct TooOften {
    protocol::Member asker = 0;
    protocol::Exchange since = 0;  // kFree beginnings since this one
    protocol::Exchange next = 0;   // not before
  };

  // `shares`: the algorithm has such a state; without one nothing is ever planned. `spread`:
  // exchanges until a word has reached everybody.
  EraPlan(bool shares, std::uint64_t spread) : shares_(shares), spread_(spread) {}

  // As messages of this member tell them.
  protocol::Eras eras() const { return {current_, next_}; }
  bool is_planned() const { return next_ != 0; }
  // Whether who tells this era shares its state with this member.
  bool is_shared(std::uint32_t era) const { return era == current_ && era != kAlone; }

  // At the beginning of this exchange: whether the shared state starts again in it. A peer
  // that missed a planned start begins by itself, and asks all others for a new one.
  bool begin(protocol::Exchange exchange);
  // One that all can have heard of, who are at `exchange` as this member is. `asker`: for whom.
  std::optional<TooOften> plan(protocol::Exchange exchange,
                               std::optional<protocol::Member> asker = {});
  // What another member tells, while this one is at `exchange`.
  std::optional<TooOften> hear(protocol::Member from, protocol::Eras its,
                               protocol::Exchange exchange);
  // What was shared no longer fits: alone until the next common beginning, which it asks for.
  void share_nothing(protocol::Exchange exchange);
  // This member goes on from there, perhaps further back.
  void go_to(protocol::Exchange exchange);

  protocol::Exchange grid() const { return 8 * (spread_ + 1); }
  protocol::Exchange span() const { return kFree * grid(); }

 private:
  bool begins_too_often(protocol::Exchange exchange) const;
  protocol::Exchange plannable_until(protocol::Exchange exchange) const;
  bool may_plan(protocol::Exchange next, protocol::Exchange exchange) const;
  std::optional<TooOften> too_often(protocol::Member asker, protocol::Exchange next);

  bool shares_;
  std::uint64_t spread_;
  std::uint32_t current_ = 0;             // began at this exchange, or kAlone
  std::uint32_t next_ = 0;                // begins at this one; 0: none is planned
  std::deque<protocol::Exchange> begun_;  // the last ones, kFree at most
  std::set<protocol::Member> askers_;     // told of, as they asked too often
};

}  // namespace starling::gossip

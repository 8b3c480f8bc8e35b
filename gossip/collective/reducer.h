// SPDX-License-Identifier: Apache-2.0
// What ends each exchange with a mean: events in, actions out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/protocol/peer_messages.h"
#include "gossip/collective/arrival_deadline.h"
#include "gossip/collective/floats.h"
#include "gossip/collective/reduce_shape.h"

namespace starling::collective {

using protocol::Attempt;
using protocol::Epoch;
using protocol::Exchange;
using protocol::Member;
using protocol::Progress;
using protocol::Waited;
using Note = protocol::ReduceNote;
namespace reduce = protocol::reduce;
using Members = std::vector<Member>;

template <class... Kinds>
bool is_one_of(const reduce::What& what) {
  return (std::holds_alternative<Kinds>(what) || ...);
}

// --- events -------------------------------------------------------------------------------------
struct Begin {  // local steps are done; an exchange that is left unfinished may be passed over
  Progress at;
  Floats input;
  // A mean that is further from `input` than this is wrong, and a piece that would lead to one is
  // refused (Reduction).
  double distance_max = std::numeric_limits<double>::infinity();
  // It was elsewhere: others may have registered here in vain, or have ended this exchange. A
  // gatherer asks them at once.
  bool was_away = false;
};
// Agreement rests on neither of these. A new link gets again what may have been lost with the old
// one; a lost one, or failure detection's word, ends the wait for that member early.
struct LinkUp {
  Member member = 0;
  std::optional<Progress> at;  // where it is, by its greeting
  bool is_new = true;          // else another greeting, which tells that and is no sign of life
};
struct LinkDown {
  Member member = 0;
};
struct NoteReceived {
  Member from = 0;
  Note note;
};
struct PieceReceived {  // whole
  Member from = 0;
  Epoch epoch = 0;
  Progress at;
  Attempt attempt = 0;
  std::uint64_t place = 0;
  Floats floats;
};
struct Copied {
};               // after CatchUp: a model came that is as far as it said, whether or not it begins
struct Tick {};  // next_deadline() has passed
using Event = std::variant<Begin, Copied, LinkUp, LinkDown, NoteReceived, PieceReceived, Tick>;

// --- actions, to be performed in order ----------------------------------------------------------
struct SendNote {
  Member to = 0;
  Note note;
};
struct SendPiece {  // as a VectorTransfer with a ReducePiece; its floats never change
  Member to = 0;
  Progress at;
  Attempt attempt = 0;
  std::uint64_t place = 0;
  Floats floats;
};
struct Finished {
  Progress at;
  Progress next;  // to begin
  Attempt attempt = 0;
  Members members;  // whose mean it is, in order; oneself not, if one came too late
  Floats mean;
};
// The donors have come to `next`, and what we are at is given up: copy a model of theirs, then
// tell with Copied, and Begin there or further; or, where no donor gives one, Begin again where we
// were.
struct CatchUp {
  Progress next;
  Members donors;
};
struct Say {
  LogLevel level = LogLevel::kWarning;
  std::string line;
};
using Action = std::variant<SendNote, SendPiece, Finished, CatchUp, Say>;

// The same on all members, but for the times.
struct AllReduceOptions {
  ArrivalDeadline::Options stragglers;  // from the first registration to the last
  // From a piece to the next.
  ArrivalDeadline::Options pieces = {.initial = std::chrono::seconds(10),
                                     .min = std::chrono::seconds(3)};
  Duration answer = std::chrono::seconds(3);  // longest silence of a gatherer
  ShapeRule shape;
  // The mean of any members counts: no majority is looked for, and nobody gives way.
  bool any_mean = false;
};

// What a member remembers of the exchanges that it took part in before its machine began.
enum class Memory {
  kWhole,
  kButForOne,  // all, but not what was promised in the exchange that it begins with: a new epoch
  kNone,       // its process was started again, and it may have been further
};

// What an exchange ended with.
struct Commit {
  Progress at;
  Attempt attempt = 0;
  Members members;
  Sha256Digest sha256;      // of the mean
  std::size_t support = 0;  // members that held it; of a weak one no majority
  Member holder = 0;        // one of them
};
struct EndedExchange {
  Commit commit;
  Floats mean;
};

// Of all members (all_reduce_machine.h), or of a group that is drawn for each exchange
// (group_reduce_machine.h).
class Reducer {
 public:
  virtual ~Reducer() = default;

  virtual std::vector<Action> on(Event event, TimePoint now) = 0;
  // When Tick is due; none while it waits for no time.
  virtual std::optional<TimePoint> next_deadline() const = 0;
  // How long a piece is waited for, learned from those that came.
  virtual Duration piece_wait() const = 0;
  // Less than kWhole: this member is fresh, and no mean counts as backed on its word.
  virtual Memory memory() const = 0;
  // Whether a majority can be there by now, as far as the pace of exchanges tells.
  virtual bool is_explainable(Progress at) const = 0;
  // What an exchange of a majority takes, local steps included; none: not seen yet.
  virtual std::optional<Duration> pace() const = 0;
  // For the machine of the next epoch, whose members may lack the commit: what the last exchange
  // ended with, if this member was among those who made it.
  virtual std::optional<EndedExchange> backed_mean() const = 0;
  // Whether this member has a part in that exchange of its own, for now.
  virtual bool takes_part(Member member, Progress at) const = 0;
  // Members of the exchange at hand, this one included.
  virtual std::size_t members() const = 0;
};

}  // namespace starling::collective

// SPDX-License-Identifier: Apache-2.0
// What gossip peers say to each other, and to the issuer of their roster. A member is named by its
// place in the roster of the epoch that the message bears; who speaks stands in the certificate.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/ids.h"

namespace starling::protocol {

using Epoch = std::uint64_t;     // of a roster, from 1
using Member = std::uint32_t;    // place in the roster, from 0: the node of the topology
using Exchange = std::uint64_t;  // number of a mixing, from 0

// How far a model is that is a mean over all who were there. Of two, the further is the one with
// more support, and only among equals the one with more exchanges: what half of the members or
// fewer did apart, however much, comes before all that a majority did meanwhile.
struct Progress {
  Exchange backed = 0;    // the exchange after the last whose mean was of more than half
  Exchange exchange = 0;  // to be ended next
  friend auto operator<=>(const Progress&, const Progress&) = default;
};

// What the speaker's model rests on. A version without these fields counts as no minority.
struct Support {
  bool minority = false;             // its model grew among half of its epoch's members, or fewer
  std::uint16_t quorum_seconds = 0;  // else: for how long it has reached more than half; at most
  Exchange backed = 0;               // of means over all: Progress::backed
  friend bool operator==(const Support&, const Support&) = default;
};

// Both ways, first: which roster the speaker holds, and which exchange it is at.
struct PeerHello {
  std::uint16_t version_min = 1;
  std::uint16_t version_max = 1;
  std::string software;
  Epoch epoch = 0;
  Exchange exchange = 0;
  bool begun = false;  // false: it has no model of its own yet
  Support support = {};
  friend bool operator==(const PeerHello&, const PeerHello&) = default;
};

// Peer -> peer or issuer: send your roster, from byte `offset` on, if it is newer than what I hold
// (a later epoch, or the same one issued later). Answered by RosterParts up to a window's end.
struct RosterAsk {
  Epoch epoch = 0;
  std::uint64_t issued_ms = 0;  // since 1970
  std::uint64_t offset = 0;
  friend bool operator==(const RosterAsk&, const RosterAsk&) = default;
};

// A piece of a signed roster, in order from 0; the payload is the piece. What it claims is believed
// only after the whole has been verified.
struct RosterPart {
  Epoch epoch = 0;
  std::uint64_t offset = 0;
  std::uint64_t total = 0;
  std::uint64_t issued_ms = 0;
  friend bool operator==(const RosterPart&, const RosterPart&) = default;
};

// Failure detection (SWIM). What is gossiped about a member.
struct SwimNews {
  enum class State : std::uint8_t { kAlive, kSuspect, kDead };
  Member member = 0;
  State state = State::kAlive;
  std::uint32_t incarnation = 0;
  Member by = 0;  // of a suspicion or death: who found it out by its own probes
  friend bool operator==(const SwimNews&, const SwimNews&) = default;
};

inline constexpr std::size_t kBeatsMax = 4096;  // members of a group whose heartbeats are told

struct Swim {
  enum class Kind : std::uint8_t {
    kPing,         // answer me
    kAck,          // the answer to `sequence`, about `target` (oneself, or whom one was to ask)
    kPingRequest,  // ping `target` for me
  };
  Kind kind = Kind::kPing;
  Epoch epoch = 0;
  std::uint64_t sequence = 0;
  Member target = 0;
  std::vector<SwimNews> news;
  // Heartbeats of all members, by place, where not everybody probes everybody; else empty.
  std::vector<std::uint64_t> beats = {};
  friend bool operator==(const Swim&, const Swim&) = default;
};

// What vectors may be for. In their place follow floats, and then packed bytes, little-endian.

// A synchronous algorithm's message to a neighbour: `first` floats, `second` floats, `packed`
// bytes.
struct MixMessage {
  Exchange exchange = 0;
  // The era of the algorithm's shared state, and the exchange in which the next one begins. Of an
  // algorithm with a state for each edge: the incarnations of the sender, and of the receiver as
  // the sender knows it (0: not at all).
  std::uint32_t era = 0;
  std::uint32_t next_era = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t packed = 0;
  std::optional<double> scalar = {};
  friend bool operator==(const MixMessage&, const MixMessage&) = default;
};

// An asynchronous algorithm's message: `floats` or `packed` bytes; neither: it only says who sends.
struct PairMessage {
  enum class Kind : std::uint8_t { kPush, kRequest, kReply };
  Kind kind = Kind::kPush;
  std::uint64_t number = 0;  // of the algorithm's; 0: none
  std::uint32_t sender_incarnation = 0;
  std::uint32_t receiver_incarnation = 0;  // as the sender knows it; 0: not at all
  std::uint64_t phases = 0;                // that the sender has trained
  std::uint64_t floats = 0;
  std::uint64_t packed = 0;
  std::optional<double> scalar = {};
  friend bool operator==(const PairMessage&, const PairMessage&) = default;
};

// A part of an all-reduce; `place` says which (gossip/collective/reduce_shape.h).
struct ReducePiece {
  Exchange exchange = 0;
  std::uint32_t attempt = 0;
  std::uint64_t place = 0;
  std::uint64_t floats = 0;
  friend bool operator==(const ReducePiece&, const ReducePiece&) = default;
};

// Columns [begin, begin + floats) of the sender's model, which is at `exchange`.
struct ModelColumns {
  Exchange exchange = 0;
  std::uint64_t begin = 0;
  std::uint64_t floats = 0;
  friend bool operator==(const ModelColumns&, const ModelColumns&) = default;
};

// To the issuer: the whole model after `exchange`, and so many steps.
struct WholeModel {
  Exchange exchange = 0;
  std::uint64_t step = 0;
  std::uint64_t floats = 0;
  friend bool operator==(const WholeModel&, const WholeModel&) = default;
};

// Announces vectors that follow as Chunks under the receiver's Credit, all with this transfer id.
struct VectorTransfer {
  using Content = std::variant<MixMessage, PairMessage, ReducePiece, ModelColumns, WholeModel>;
  TaskId id;
  Epoch epoch = 0;
  Content content = {};
  Support support = {};  // of the sender's model; of a WholeModel nothing
  friend bool operator==(const VectorTransfer&, const VectorTransfer&) = default;
};

// Of the vectors that it announces.
std::uint64_t payload_bytes(const VectorTransfer& transfer);

// Peer -> peer: send these columns of your model, as ModelColumns.
struct ColumnsAsk {
  Epoch epoch = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const ColumnsAsk&, const ColumnsAsk&) = default;
};

// To ColumnsAsk: there is no model to give yet, for this peer copies one itself or has given the
// asker enough for now. The ask is kept; another donor may be quicker.
struct ColumnsPutOff {
  Epoch epoch = 0;
  friend bool operator==(const ColumnsPutOff&, const ColumnsPutOff&) = default;
};

// All-reduce (gossip/collective/all_reduce_machine.h): members register with the gatherer of an
// attempt, which names those who reduce and commits their mean. A mean is named by its SHA-256, and
// by the number of the attempt in which it was held last. Among neighbours kAsk, kDone and kNotYet
// are about a message that is waited for (neighbour_protocol.cpp).
struct ReduceNote {
  enum class Kind : std::uint8_t {
    kRegister,  // to the gatherer: I have begun `exchange` and take part in nothing below `attempt`
    kList,      // gatherer: reduce among `members`; or, with `held`, take that mean from `other`
    kDone,      // to the gatherer: I hold the mean of `attempt`
    kCommit,    // `exchange` has ended with the mean of `attempt` over `members`
    kWant,      // send me the mean `sha256`, which is said to be of attempt `held`
    kAsk,       // register under `attempt`; in any case say whether you are further (0: or kWait)
    kNotYet,    // to kWant: I do not have the mean that is said to be of `held`
    kWait,      // I am here, and have nothing else to say yet
    kAhead,  // I am at `exchange`; yours has no mean to be had any more: copy a model of `members`
  };
  Kind kind = Kind::kRegister;
  Epoch epoch = 0;
  Exchange exchange = 0;
  std::uint32_t attempt = 0;
  std::uint32_t held = 0;       // the attempt whose mean the speaker holds; 0: none
  std::vector<Member> members;  // kRegister: of `held`; without one, who does not answer it
  Exchange backed = 0;          // Progress::backed of who begins `exchange`
  // kRegister and kList with `count`: whom the member waited for. kList with `held`, kCommit: who
  // has the mean.
  Member other = 0;
  // kRegister: pieces that the member had when it gave up its last attempt, and 1; 0: it did not.
  // kCommit: members that held the mean then.
  std::uint16_t count = 0;
  bool wrong = false;  // kRegister with `count`: `other` sent numbers that cannot be of this run
  // kRegister: the speaker was started again, or is new to the epoch, and does not remember what it
  // promised before.
  bool fresh = false;
  // kRegister and kList: the mean (that is held) cannot count as one of a majority.
  bool weak = false;
  // kRegister and kList with `held`, kDone, kCommit, kWant: of the mean, as little-endian floats.
  std::optional<Sha256Digest> sha256 = {};
  friend bool operator==(const ReduceNote&, const ReduceNote&) = default;
};

// Where the speaker's model is, and the exchange that a note of an all-reduce is about.
inline Progress progress_of(const PeerHello& hello) {
  return {.backed = hello.support.backed, .exchange = hello.exchange};
}
inline Progress progress_of(const ReduceNote& note) {
  return {.backed = note.backed, .exchange = note.exchange};
}

// Peer -> issuer: how it goes, for whoever watches.
struct PeerReport {
  Epoch epoch = 0;
  Exchange exchange = 0;
  std::uint64_t step = 0;
  std::string state;  // joining, training, waiting, catching-up, alone, finished, refused
  double loss = 0;    // mean over the steps since the last report; 0 at none
  std::uint64_t loss_steps = 0;
  std::uint32_t neighbours = 0;  // heard in the last exchange
  std::uint32_t expected = 0;    // that there should have been
  std::uint32_t reachable = 0;   // members, oneself included
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages = 0;  // sent
  std::string problem;         // a sentence, or empty
  // Of messages to it: those that came, of these after it had gone on, and those that did not come.
  std::uint64_t arrived = 0;
  std::uint64_t late = 0;
  std::uint64_t lost = 0;
  std::uint64_t staleness = 0;  // summed over those that came: exchanges that it ended meanwhile
  friend bool operator==(const PeerReport&, const PeerReport&) = default;
};

// A frame of the peers' protocol, carried by the issuer between two that cannot dial each other.
// The payload is the frame's.
struct Relay {
  std::string peer;  // to the issuer: whom it is for; from the issuer: who sent it
  std::uint16_t type = 0;
  Bytes header;
  friend bool operator==(const Relay&, const Relay&) = default;
};

}  // namespace starling::protocol

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
// Of an all-reduce: round k of gatherer g among n members is k n + g + 1; 0: none.
using Attempt = std::uint32_t;

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
  std::uint64_t elements = 0;  // of its model; 0: not said
  std::string refusal = {};    // why it takes no part in the run of this epoch; empty: it does
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

// Where neighbours share state: the exchange in which what they share now began, and the one in
// which it begins next (0: none is planned).
struct Eras {
  std::uint32_t current = 0;
  std::uint32_t next = 0;
  friend bool operator==(const Eras&, const Eras&) = default;
};

// Where each edge has a state of its own: which of its processes either end is; 0: not known.
struct Incarnations {
  std::uint32_t sender = 0;
  std::uint32_t receiver = 0;  // as the sender knows it
  friend bool operator==(const Incarnations&, const Incarnations&) = default;
};

// A synchronous algorithm's message to a neighbour: `first` floats, `second` floats, `packed`
// bytes.
struct MixMessage {
  Exchange exchange = 0;
  std::variant<Eras, Incarnations> state = {};  // that the algorithm keeps of its neighbours
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t packed = 0;
  std::optional<double> scalar = {};
  friend bool operator==(const MixMessage&, const MixMessage&) = default;
};

// An asynchronous algorithm's message: `floats`, or `packed` bytes.
struct PairMessage {
  enum class Kind : std::uint8_t { kPush, kRequest, kReply };
  Kind kind = Kind::kPush;
  std::uint64_t number = 0;  // of the algorithm's, from 1
  Incarnations edge;
  std::uint64_t phases = 0;  // that the sender has trained
  std::uint64_t floats = 0;
  std::uint64_t packed = 0;
  std::optional<double> scalar = {};
  friend bool operator==(const PairMessage&, const PairMessage&) = default;
};

// Who sends, to one that may not know it. Without vectors.
struct Introduction {
  Incarnations edge;
  Exchange exchange = 0;  // as in PeerHello
  friend bool operator==(const Introduction&, const Introduction&) = default;
};

// Of an asynchronous algorithm's messages, the newest that came, used or not; 0: none is taken.
// Without vectors.
struct Confirmation {
  std::uint64_t number = 0;
  Incarnations edge;
  std::uint64_t phases = 0;  // that the sender has trained
  friend bool operator==(const Confirmation&, const Confirmation&) = default;
};

// A part of an all-reduce; `place` says which (gossip/collective/reduce_shape.h).
struct ReducePiece {
  Exchange exchange = 0;
  Attempt attempt = 0;
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
  using Content = std::variant<MixMessage, PairMessage, Introduction, Confirmation, ReducePiece,
                               ModelColumns, WholeModel>;
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

// Neighbour -> neighbour: I wait for your MixMessage of `exchange`. Where are you?
struct MixAsk {
  Epoch epoch = 0;
  Exchange exchange = 0;
  Support support = {};
  friend bool operator==(const MixAsk&, const MixAsk&) = default;
};

// To MixAsk: I am at `exchange`, and have sent you the message of the exchange `asked`, or not.
struct MixAnswer {
  Epoch epoch = 0;
  Exchange exchange = 0;
  Exchange asked = 0;
  bool sent = false;
  Support support = {};
  friend bool operator==(const MixAnswer&, const MixAnswer&) = default;
};

// A mean that members of an all-reduce hold.
struct NamedMean {
  Attempt attempt = 0;  // in which it was held last
  std::vector<Member> members;
  Sha256Digest sha256 = {};  // of the mean, as little-endian floats
  bool weak = false;         // it cannot count as one of a majority
  friend bool operator==(const NamedMean&, const NamedMean&) = default;
};

// What a member complains of: nothing came from `member`, or numbers that cannot be right.
struct Blame {
  Member member = 0;
  std::uint16_t pieces = 1;  // that it had when it gave up, and 1
  bool wrong = false;        // its numbers cannot be of this run
  friend bool operator==(const Blame&, const Blame&) = default;
};

// The longest wait of a member for a piece of another in one attempt.
struct Waited {
  Member of = 0;
  std::uint16_t piece = 1;  // as in Blame: of two who waited as long, the lower one waited first
  std::uint32_t milliseconds = 0;
  friend bool operator==(const Waited&, const Waited&) = default;
};

// What a note of an all-reduce says (gossip/collective/all_reduce_machine.h): members register with
// the gatherer of an attempt, which names those who reduce and commits their mean.
namespace reduce {

struct Register {  // to the gatherer: I have begun, and take part in nothing below `attempt`
  std::optional<NamedMean> held = {};
  std::vector<Member> lost = {};  // who does not answer me; not told with a mean that is held
  std::optional<Blame> blame = {};
  bool fresh = false;  // started again, or new to the epoch: I do not remember what I promised
  friend bool operator==(const Register&, const Register&) = default;
};

struct List {  // from the gatherer: reduce among `members`
  std::vector<Member> members;
  bool weak = false;                 // their mean will be
  std::optional<Member> apart = {};  // the member you blamed: `members` lacks one of you
  friend bool operator==(const List&, const List&) = default;
};

struct Standing {  // from the gatherer, in place of a list: take this mean from `holder`
  NamedMean mean;
  Member holder = 0;
  friend bool operator==(const Standing&, const Standing&) = default;
};

struct Done {  // to the gatherer: I hold this mean in `attempt`
  Sha256Digest sha256 = {};
  std::optional<Waited> waited = {};
  friend bool operator==(const Done&, const Done&) = default;
};

struct Commit {  // the exchange has ended with the mean of `attempt` over `members`
  std::vector<Member> members;
  Sha256Digest sha256 = {};
  std::uint16_t support = 0;  // members that held the mean then
  Member holder = 0;          // one that has it
  friend bool operator==(const Commit&, const Commit&) = default;
};

struct Want {  // send me this mean, which is said to be of `attempt`
  Sha256Digest sha256 = {};
  friend bool operator==(const Want&, const Want&) = default;
};

struct NotYet {  // to Want: I do not have the mean that is said to be of `attempt`
  friend bool operator==(const NotYet&, const NotYet&) = default;
};

struct Ask {  // register under `attempt`
  friend bool operator==(const Ask&, const Ask&) = default;
};

struct AskProgress {  // I am at `at`: are you further?
  friend bool operator==(const AskProgress&, const AskProgress&) = default;
};

struct Wait {  // I am here, and have nothing else to say yet
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct Ahead {  // I am at `at`; yours has no mean to be had any more: copy a model of `donors`
  std::vector<Member> donors;
  friend bool operator==(const Ahead&, const Ahead&) = default;
};

using What = std::variant<Register, List, Standing, Done, Commit, Want, NotYet, Ask, AskProgress,
                          Wait, Ahead>;

}  // namespace reduce

struct ReduceNote {
  Epoch epoch = 0;
  Progress at = {};     // the exchange that it is about
  Attempt attempt = 0;  // of that exchange; 0: none
  reduce::What what = {};
  friend bool operator==(const ReduceNote&, const ReduceNote&) = default;
};

// Where the speaker's model is.
inline Progress progress_of(const PeerHello& hello) {
  return {.backed = hello.support.backed, .exchange = hello.exchange};
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
  std::uint32_t reachable = 0;   // members that are not known to be away, oneself included
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages = 0;  // sent
  std::string problem;         // a sentence, or empty
  // Of messages to it: those that came, of these after it had gone on, and those that did not come.
  std::uint64_t arrived = 0;
  std::uint64_t late = 0;
  std::uint64_t lost = 0;
  std::uint64_t staleness = 0;  // summed over those that came: exchanges that it ended meanwhile
  std::uint32_t linked = 0;  // members that it has a link with, oneself included; 0: does not say
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

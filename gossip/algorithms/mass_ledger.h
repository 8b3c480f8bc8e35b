// SPDX-License-Identifier: Apache-2.0
// Push-sum's mass where messages get lost, after the robust ratio consensus of Hadjicostis,
// Dominguez-Garcia and Charalambous (2018): what travels on an edge is the total ever pushed there;
// the receiver takes what is new in it, so mass lost with one message comes with the next. All is
// fixed point (2^-40) modulo 2^64: nothing is rounded away, and differences stay right for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/linalg/huge_pages.h"
#include "gossip/algorithms/algorithm.h"

namespace starling::gossip {

// One node's mass (x, w) and its ends of the edges. A total: [d] elements of x, then w, each 8
// bytes, little endian as every machine that Starling runs on.
class MassLedger {
 public:
  using Fixed = std::uint64_t;  // two's complement, in units of 2^-40
  static constexpr double kUnit = 0x1p-40;
  // A node with less weight keeps what it has instead of pushing: it heard nothing for long, and
  // what it would push tells nothing.
  static constexpr double kLeastWeight = 0x1p-16;

  // The most weight that an honest one of `members` holds, pushes onto one edge, and gets from one
  // other member between two pushes of its own. Pushing and pulling keep the sum over all members
  // and edges, n as all begin with 1, and what a node has not pushed on yet is not counted twice in
  // it. A restart with another's model changes the sum: the node's weight becomes 1 again, whatever
  // it was, which makes 1 at most. Twice n leaves room for n such restarts of nodes that held
  // nothing.
  static constexpr double most_weight(Node members) { return 2.0 * members; }
  static bool can_weigh(double weight, Node members) {
    return weight > 0 && weight <= most_weight(members);
  }

  // Of an edge's total on the wire.
  static constexpr std::uint64_t total_bytes(std::uint64_t size) {
    return (size + 1) * sizeof(Fixed);
  }

  // Of an edge's total: the weight.
  static double weight_of(std::span<const std::byte> total);

  // w = 1 and x = 0. `members` begin with a weight of 1 each. `balanced`: all mixing matrices are
  // doubly stochastic, so little weight is never the graph's doing; see settle(). An edge that
  // carried nothing for long may then hold more than most_weight(), and at most that is taken of it
  // between two pushes.
  explicit MassLedger(std::size_t size, Node members = kMembersMax, bool balanced = false)
      : mass_(size + 1), members_(members), balanced_(balanced) {
    mass_.back() = kOne;
  }

  // w = 1, x = model; what is on the edges stays theirs.
  template <class T>
  void reset(std::span<const T> model);
  // x += factor * update. What leaves +-2^20 cannot be held: the model is not a number from then
  // on.
  template <class T>
  void add(std::span<const T> update, double factor);
  // Before the pushes of an exchange; z stays. A weight that cannot be, since others lied of
  // theirs, becomes the most that can be: else others would take this node's pushes for lies.
  // A balanced ledger makes weight where next to none is left: below 2^-11 it grows by 2^-14, at
  // most by what came since the pushes before. Without that, a node that receives weight and sends
  // none would end with all of it, and the others could no longer mix. A node that receives nothing
  // makes nothing, or its model would lead all others. Above 1 a node gives up what it made, an
  // eighth of the excess at a time; between 1/8 and little more than 1 it forgets a sixteenth of
  // that each time, since weight that was made may be gone with an edge.
  void settle();
  // Whether this node took more than 3/4 that it did not give back, and little weight (2^-6) is
  // left: so at the last 8 calls of settle() that followed a pull. A node that pushes several times
  // between two pulls has little left for a moment only.
  bool is_drained_by(Node other) const;
  // The part of the mass that this receiver gets: its weight, or nothing where it has drained this
  // node and could give back, having an edge to here. A node that only takes would have all weight
  // of its neighbours, who then could not mix with each other either.
  double share(const Links& links, const topologies::Weight& receiver);
  // Who got nothing for that since this was asked last.
  std::optional<Node> take_drained_by() { return std::exchange(drained_by_, std::nullopt); }
  // Pushes `fraction` of the mass onto the edge, nothing below kLeastWeight. Returns the edge's
  // total, valid and unchanged until the next push there.
  std::span<const std::byte> push(Node to, double fraction);
  // Makes room for an edge, so that pulls need not (they may run on several threads).
  void open(Node from);
  // Takes what is new in these elements (of d + 1) of the edge's total. Requires: open(from).
  void pull(Node from, std::span<const std::byte> total, Columns elements);
  // Whether an honest other end can have pushed so much: no less weight than before, not more than
  // most_weight() since the last push here (unless balanced), nothing without weight, and no
  // element that would come to 2^19, beyond which the next local steps might leave what can be
  // held. O(d).
  bool is_plausible(Node from, std::span<const std::byte> total) const;
  // z = x / w of what is new in the edge's total; z stays where no weight is.
  template <class T>
  void read_new(Node from, std::span<const std::byte> total, std::span<T> z) const;
  // Both totals of the edge begin at 0 again: its other end has lost them, or says so; what it took
  // counts on in is_drained_by(). A balanced ledger has at least kLeastWeight then. O(1) where they
  // are 0 and the weight need not be made.
  void forget(Node other);
  // The mass here, without the edges.
  void visit_state(StateVisitor& state) { state.visit("mass", std::span<Fixed>(mass_)); }
  // Mass and edges.
  void archive(Archive& state);
  // z = x / w.
  template <class T>
  void read(std::span<T> z) const;

  bool balanced() const { return balanced_; }
  std::size_t size() const { return mass_.size() - 1; }
  double weight() const { return value(mass_.back()); }
  // The weight that settle() and forget() made, less what it and pull() took away (two's
  // complement).
  Fixed made() const { return made_; }
  // The mass here, and all that was ever pushed to or pulled from a node ([d + 1]).
  std::span<const Fixed> mass() const { return mass_; }
  std::span<const Fixed> pushed(Node to) const;
  std::span<const Fixed> pulled(Node from) const;

 private:
  using Totals = linalg::NodeVector<Fixed>;
  struct Incoming {
    Totals total;    // that the edge's other end ever pushed, as far as it came
    Fixed came = 0;  // weight that was taken since the last settle()
    Fixed cut = 0;   // weight of `total` that was not taken
  };
  static constexpr Fixed kOne = Fixed{1} << 40;
  static constexpr Node kMembersMax = 1 << 16;
  double taken(Node other) const;
  Fixed came_since_push(Node from) const;
  void scale(double to);
  static double value(Fixed x) { return static_cast<double>(static_cast<std::int64_t>(x)) * kUnit; }

  Totals mass_;  // x, then w
  Node members_;
  bool balanced_;
  Fixed made_ = 0;
  double grown_ = 0;              // weight that was made and is to be given up
  std::uint32_t little_for_ = 0;  // calls of settle(), as is_drained_by() counts them
  std::unordered_map<Node, Totals> pushed_;
  std::unordered_map<Node, Incoming> pulled_;
  std::unordered_map<Node, double> taken_;  // weight, before the edge was forgotten last
  std::optional<Node> drained_by_;
  bool overflowed_ = false;
};

}  // namespace starling::gossip

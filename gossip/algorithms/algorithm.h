// SPDX-License-Identifier: Apache-2.0
// One node's side of a synchronous gossip algorithm: it knows its own state and its messages, and
// nothing of where it runs. The simulator and real peers drive the same objects:
//   adapt() -> message() to every receiver -> absorb() what came, column by column -> conclude()
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/archive.h"
#include "core/base/error.h"
#include "gossip/algorithms/algorithm_state.h"
#include "topologies/mixing_matrix.h"

namespace starling::gossip {

using topologies::Node;

struct Plan;  // make_algorithm.h

// What a node trains with: its rows, the order of its batches, its optimizer's state. A custom
// trainer may fail; the node's training cannot go on then.
template <class T>
class LocalTraining {
 public:
  virtual ~LocalTraining() = default;
  // One step of the node's optimizer on its next batch, in place: of plain SGD
  // x <- x - rate * g(x). Returns the batch's mean loss at the x that came in.
  [[nodiscard]] virtual Result<double> step(std::span<T> x, double rate) = 0;
  // `count` steps in a row. Returns the sum of their losses.
  [[nodiscard]] virtual Result<double> steps(std::span<T> x, double rate, int count) = 0;
  // The gradient on the next batch at x, weight decay included, without the optimizer. Returns the
  // mean loss.
  [[nodiscard]] virtual Result<double> gradient(std::span<const T> x, std::span<T> gradient) = 0;
};

// The local steps between two mixings.
struct LocalPhase {
  std::uint64_t step = 0;      // number of the first, from 0
  int steps = 1;               // H
  double rate = 0;             // step size eta of these steps
  std::uint64_t exchange = 0;  // number of the mixing that follows, from 0
};

// The mixing of one step as one node sees it. Borrowed from a MixingMatrix.
struct Links {
  Node node = 0;
  double self_weight = 1;                         // W_ii
  std::span<const topologies::Weight> senders;    // W_ij, ascending by node
  std::span<const topologies::Weight> receivers;  // W_ji, ascending by node
  std::span<const Node> absent = {};              // ascending: what they are sent does not come

  bool is_sender(Node other) const {
    return std::ranges::binary_search(senders, other, {}, &topologies::Weight::node);
  }
};

// What a node sends at one mixing: a view of the sender's own state, valid until its conclude().
// Whoever keeps it longer copies it. On the wire vectors travel as float32.
template <class T>
struct Message {
  std::span<const T> first;           // [d], mixed column by column; may be empty
  std::span<const T> second;          // [d] or empty
  std::span<const std::byte> packed;  // where the algorithm has an encoding of its own, or empty
  double scalar = 0;                  // push-sum: the weight; RelaySGD: the count
  bool has_scalar = false;

  std::uint64_t bytes() const {  // on the wire, without framing
    return 4 * (first.size() + second.size()) + packed.size() + (has_scalar ? 8 : 0);
  }
};

template <class T>
struct Received {
  Node from = 0;
  double weight = 0;                    // W_ij
  const Message<T>* message = nullptr;  // null: it did not come
};

// Elements [begin, end) of the flat vectors.
struct Columns {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// What became of one message under a robust rule (robust_mixing.h).
struct Bounded {
  double distance = 0;  // of its model from the node's own; infinite where it is not a number
  double kept = 1;      // part of its weight that was mixed: 1 all of it, 0 nothing
  bool is_far = false;  // much farther than others, or infinitely: it is no honest model
};

// An encoded message as vectors that can be compared, [d] each.
template <class T>
struct Unpacked {
  std::vector<T> theirs;
  std::vector<T> own;  // this node's of the same kind
};

template <class T>
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // The local steps; then messages are ready. Returns the sum of the steps' losses. Where training
  // fails, with its error, and the object is of no use any more.
  [[nodiscard]] virtual Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                             const Links& links) = 0;

  // For links.receivers[receiver] of the last adapt(). The same for all unless the algorithm's
  // traits say otherwise.
  virtual const Message<T>& message(std::size_t receiver) const = 0;

  // Mixes these columns of what came: `inbox` has one entry for each of links.senders, in order
  // (algorithms that average over all nodes: one entry, whose message holds the mean). Writes
  // nothing that message() shows, so that nodes may absorb in any order and different columns on
  // different threads at once; every column is absorbed once. Bits do not depend on how columns
  // are divided. Algorithms whose traits say so are always given all columns at once.
  virtual void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) = 0;

  // Of the last absorb() under a robust rule: an entry for each message that came, in the inbox's
  // order. Empty without a rule.
  virtual std::span<const Bounded> bounded() const { return {}; }

  // Once, after all columns: scalars, and what becomes the model. Ends the messages' validity.
  virtual void conclude(const Links& links, std::span<const Received<T>> inbox) = 0;

  // What is evaluated and averaged: x, of push-sum x / w. Valid until the next call that changes
  // the node.
  virtual std::span<const T> model() const = 0;

  // A node that comes back, or joins late, with another node's model: everything else as new.
  virtual void restart(std::span<const T> model) = 0;

  // The members are others from here on, and this is links.node of `plan`. What members share
  // begins anew, as in a new object; what this node learned by itself stays. `trained`: the phase
  // of the last adapt(), which is not mixed yet: its messages are ready for `links` then. Null:
  // none.
  virtual void regroup(const Plan& /*plan*/, const Links& /*links*/,
                       const LocalPhase* /*trained*/) {}

  // What a process that comes back goes on with beside its own model (algorithm_state.h), between
  // conclude() and adapt(). Nothing that the two ends of an edge share: they agree anew on it.
  virtual void visit_state(StateVisitor&) {}
  // All that decides what it does from here on, between conclude() and adapt(), also what the ends
  // of edges share: a simulation that was stopped goes on with it, in an object made of the same
  // plan. False: not offered; such a simulation begins again.
  virtual bool archive(Archive&) { return false; }

  // Whether encoded bytes of the right number, from that sender, can be absorbed: what a stranger's
  // hand may have written is asked about first.
  virtual bool can_read(Node, std::span<const std::byte>) const { return true; }
  // The same of a message's scalar: whether a sender that does not lie can have such a weight or
  // count.
  virtual bool can_weigh(double) const { return true; }
  // What an encoded message of that sender would bring. None where messages are not encoded.
  // Requires: can_read(); between adapt() and conclude().
  virtual std::optional<Unpacked<T>> unpack(Node, const Message<T>&) const { return std::nullopt; }
  // Whether both ends of an edge keep count of what passed it. Then forget() both counts of an edge
  // whose other end has begun anew, and what it had not taken is lost with it.
  virtual bool counts_on_edges() const { return false; }
  // Who got nothing since this was asked last, as it only takes (push-sum's weight). Asked between
  // two calls of the above.
  virtual std::optional<Node> drained_by() { return std::nullopt; }
  virtual void forget(Node) {}
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// One node's side of an asynchronous gossip algorithm: nobody waits for a step of the others.
// Driven by what happens: a local phase ended, a message came, a reply did not come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/rng.h"
#include "gossip/algorithms/algorithm.h"

namespace starling::gossip {

// An owned message: it may be on its way while its sender goes on.
template <class T>
struct AsyncMessage {
  enum class Kind : std::uint8_t { kPush, kRequest, kReply };
  Kind kind = Kind::kPush;
  // Of its sender; a reply bears its request's. Part of the framing.
  std::uint64_t number = 0;
  std::vector<T> vector;          // [d], or empty
  std::vector<std::byte> packed;  // where the algorithm has an encoding of its own, or empty
  double scalar = 0;              // push-sum: the weight
  bool has_scalar = false;

  std::uint64_t bytes() const {  // on the wire, without framing
    return 4 * vector.size() + packed.size() + (has_scalar ? 8 : 0);
  }
  void archive(Archive& state) {
    state(kind);
    state.expect(kind <= Kind::kReply);
    state(number);
    state.vector(vector);
    state.vector(packed);
    state(scalar);
    state(has_scalar);
  }
};

template <class T>
struct AsyncSend {
  Node to = 0;
  std::shared_ptr<const AsyncMessage<T>> message;
};

template <class T>
class AsyncAlgorithm {
 public:
  virtual ~AsyncAlgorithm() = default;

  // What the next local phase starts from, and what is evaluated.
  virtual std::span<const T> model() const = 0;

  // A local phase that began at a copy of model() ended `update` further on (x_H - x_0, [d]); the
  // model may have changed meanwhile. `links`: the neighbours now. Returns what to send.
  [[nodiscard]] virtual std::vector<AsyncSend<T>> trained(std::span<const T> update,
                                                          const Links& links, Rng& rng) = 0;
  [[nodiscard]] virtual std::vector<AsyncSend<T>> receive(Node from,
                                                          const AsyncMessage<T>& message) = 0;

  // A reply is to come, while training goes on; unanswered() gives it up.
  virtual bool waiting() const = 0;
  virtual void unanswered() = 0;

  virtual void restart(std::span<const T> model) = 0;
  // As of Algorithm, at any time.
  virtual void visit_state(StateVisitor&) {}
  // As of Algorithm, at any time.
  virtual bool archive(Archive&) { return false; }
  // Whether that sender can have encoded these bytes.
  virtual bool can_read(Node, std::span<const std::byte>) const { return true; }
  // The same of a message's scalar, beside what came of that sender before.
  virtual bool can_weigh(Node, double) const { return true; }
  // What an encoded message would bring, and this node's own of the same kind. None where it is not
  // encoded, or brings nothing.
  virtual std::optional<Unpacked<T>> unpack(Node, const AsyncMessage<T>&) const {
    return std::nullopt;
  }
  // As of Algorithm.
  virtual bool counts_on_edges() const { return false; }
  // What its model counts with (push-sum).
  virtual double weight() const { return 1; }
  virtual std::optional<Node> drained_by() { return std::nullopt; }
  virtual void forget(Node) {}
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// AD-PSGD (Lian, Zhang, Zhang, Liu, ICML 2018, algorithm 1): whenever a local phase has found its
// steps u_i, the node and a neighbour average, x_i, x_j <- (x_i + x_j) / 2, and then x_i <- x_i +
// u_i. One part of a bipartite graph asks, the other answers at once, so nobody waits in a circle.
// Bytes: 4 d for a request, 4 d for a reply.
#pragma once

#include "gossip/algorithms/async_algorithm.h"
#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// As in the paper, nodes train on while a reply is on its way, so the mean and u_i do not wait for
// each other: with x_i as it was when it asked, before u_i, the asker takes
// x_i <- (x_i + x_j) / 2 + u_i + what it has learnt since. So a node counts as often as it trains,
// and both parts alike; there is one request at a time. A lost reply leaves the asker without its
// half: the mean moves by (x_i - x_j) / 2n, and where a part l of the messages is lost, data of
// nodes that ask count up to 1 / (1 - l) times.
template <class T>
class AdPsgd final : public AsyncAlgorithm<T> {
 public:
  AdPsgd(bool active, std::span<const T> model) : active_(active), x_(model.begin(), model.end()) {}

  std::span<const T> model() const override { return x_; }
  // An active node that waits for no reply asks one of links.receivers, drawn evenly.
  std::vector<AsyncSend<T>> trained(std::span<const T> update, const Links& links,
                                    Rng& rng) override;
  // A reply that comes after its request was given up is taken as one in time, unless another was
  // given up since. Replies to anything else are ignored, and so are requests to an active node.
  std::vector<AsyncSend<T>> receive(Node from, const AsyncMessage<T>& message) override;
  bool waiting() const override { return open_.request != nullptr; }
  void unanswered() override;
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override;

 private:
  struct Question {
    Node asked = 0;
    std::shared_ptr<const AsyncMessage<T>> request;  // null: none
  };
  void archive(Archive& state, Question& question);
  bool answers(const Question& question, Node from, const AsyncMessage<T>& reply) const;

  bool active_;
  Vector<T> x_;
  Question open_;             // waits for a reply
  Question given_up_;         // the last one
  std::uint64_t number_ = 0;  // of the last request
};

}  // namespace starling::gossip

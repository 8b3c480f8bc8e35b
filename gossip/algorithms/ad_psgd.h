// SPDX-License-Identifier: Apache-2.0
// AD-PSGD (Lian, Zhang, Zhang, Liu, ICML 2018): x_i <- x_i + u_i whenever a local phase ends, and
// pairs average, x_i, x_j <- (x_i + x_j) / 2. One part of a bipartite graph asks, the other answers
// at once, so nobody waits in a circle. Bytes: 4 d for a request, 4 d for a reply.
#pragma once

#include "gossip/algorithms/async_algorithm.h"
#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// As in the paper, nodes train on while a reply is on its way: with x_i as it was when it asked,
// the asker takes x_i <- (x_i + x_j) / 2 + what it has learnt since. So a node counts as often as
// it trains, and both parts alike; there is one request at a time. A lost reply leaves the asker
// without its half: the mean moves by (x_i - x_j) / 2n, and where a part l of the messages is lost,
// data of nodes that ask count 1 / (1 - l) times.
template <class T>
class AdPsgd final : public AsyncAlgorithm<T> {
 public:
  AdPsgd(bool active, std::span<const T> model) : active_(active), x_(model.begin(), model.end()) {}

  std::span<const T> model() const override { return x_; }
  // An active node that waits for no reply asks one of links.receivers, drawn evenly.
  std::vector<AsyncSend<T>> trained(std::span<const T> update, const Links& links,
                                    Rng& rng) override;
  // Replies to what was not asked, or was given up, are ignored, and so are requests to an active
  // node.
  std::vector<AsyncSend<T>> receive(Node from, const AsyncMessage<T>& message) override;
  bool waiting() const override { return request_ != nullptr; }
  void unanswered() override { request_.reset(); }
  void restart(std::span<const T> model) override;

 private:
  bool active_;
  Vector<T> x_;
  std::shared_ptr<const AsyncMessage<T>> request_;  // that waits for a reply
  Node asked_ = 0;
  std::uint64_t number_ = 0;  // of the last request
};

}  // namespace starling::gossip

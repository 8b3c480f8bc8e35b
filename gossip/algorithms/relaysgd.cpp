// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/relaysgd.h"

#include <algorithm>

#include "core/base/check.h"
#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {

// All neighbours' sum once, and each neighbour's own part taken out again: O(neighbours) also at
// the hub of a star. In double, so that taking out leaves nothing behind.
template <class T>
void RelaySgd<T>::relay(Columns part, double total) {
  double sum[kFlowColumns] = {};
  for (const Neighbour& from : neighbours_) {
    if (from.count == 0) continue;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      sum[i - part.begin] += from.count * static_cast<double>(from.came[i] - x_[i]);
    }
  }
  for (Neighbour& to : neighbours_) {
    const double inverse = 1 / (total - to.count);
    for (std::size_t i = part.begin; i < part.end; ++i) {
      double others = sum[i - part.begin];
      if (to.count != 0) others -= to.count * static_cast<double>(to.came[i] - x_[i]);
      to.sent[i] = x_[i] + static_cast<T>(others * inverse);
    }
  }
}

template <class T>
Result<double> RelaySgd<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                  const Links& links) {
  STARLING_ASSIGN(const double loss, training.steps(x_, phase.rate, phase.steps));
  prepare(links);
  return loss;
}

// The messages to the neighbours.
template <class T>
void RelaySgd<T>::prepare(const Links& links) {
  if (neighbours_.empty()) {
    const Vector<T> zero(x_.size());
    neighbours_.assign(links.receivers.size(), {.came = zero, .sent = zero});
  }
  STARLING_CHECK(neighbours_.size() == links.receivers.size());
  double total = 1;
  for (const Neighbour& from : neighbours_) total += from.count;
  for_parts({0, x_.size()}, [&](Columns part) { relay(part, total); });
  for (Neighbour& to : neighbours_) {
    // A neighbour may lie about its count: what is passed on stays a count that a node can have.
    const double count = std::min(total - to.count, std::max(nodes_ - 1.0, 1.0));
    to.message = {.first = to.sent, .scalar = count, .has_scalar = true};
  }
}

template <class T>
const Message<T>& RelaySgd<T>::message(std::size_t receiver) const {
  return neighbours_[receiver].message;
}

template <class T>
void RelaySgd<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  STARLING_CHECK(inbox.size() == neighbours_.size());
  double total = 1;  // more than the nodes only if a neighbour lies
  for (const Received<T>& received : inbox) {
    if (received.message != nullptr) total += received.message->scalar;
  }
  const double whole = std::max<double>(nodes_, total);
  MixTerms<T>& terms = terms_of<T>({});
  for (std::size_t k = 0; k < inbox.size(); ++k) {
    const Message<T>* const message = inbox[k].message;
    if (message == nullptr) continue;
    terms.add(message->first.data(), message->scalar / whole);
    std::copy(message->first.data() + columns.begin, message->first.data() + columns.end,
              neighbours_[k].came.data() + columns.begin);
  }
  mix<T>(terms, x_.data(), x_.data(), x_.data(), columns);
}

template <class T>
void RelaySgd<T>::conclude(const Links&, std::span<const Received<T>> inbox) {
  for (std::size_t k = 0; k < inbox.size(); ++k) {
    neighbours_[k].count = inbox[k].message == nullptr ? 0 : inbox[k].message->scalar;
  }
}

template <class T>
void RelaySgd<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  for (Neighbour& neighbour : neighbours_) neighbour.count = 0;
}

template <class T>
void RelaySgd<T>::regroup(const Plan& plan, const Links& links, const LocalPhase* trained) {
  nodes_ = plan.nodes;
  neighbours_.clear();
  if (trained != nullptr) prepare(links);
}

template <class T>
bool RelaySgd<T>::archive(Archive& state) {
  state.elements(std::span(x_));
  const std::size_t count = state.count(neighbours_.size(), x_.size() * sizeof(T));
  state.expect(count < nodes_);
  if (!state.good()) return true;
  if (state.reading()) {
    const Vector<T> zero(x_.size());
    neighbours_.assign(count, {.came = zero, .sent = zero, .message = {}});
  }
  for (Neighbour& neighbour : neighbours_) {
    state.elements(std::span(neighbour.came));
    state(neighbour.count);
  }
  return true;
}

template class RelaySgd<float>;
template class RelaySgd<double>;

}  // namespace starling::gossip

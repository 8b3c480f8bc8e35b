// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/ad_psgd.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip {

template <class T>
std::vector<AsyncSend<T>> AdPsgd<T>::trained(std::span<const T> update, const Links& links,
                                             Rng& rng) {
  STARLING_CHECK(!waiting_ && update.size() == x_.size());
  for (std::size_t i = 0; i < x_.size(); ++i) x_[i] += update[i];
  if (!active_ || links.receivers.empty()) return {};
  asked_ = links.receivers[rng.below(links.receivers.size())].node;
  waiting_ = true;
  auto request = std::make_shared<AsyncMessage<T>>();
  request->kind = AsyncMessage<T>::Kind::kRequest;
  request->number = ++number_;
  request->vector.assign(x_.begin(), x_.end());
  return {{asked_, std::move(request)}};
}

template <class T>
std::vector<AsyncSend<T>> AdPsgd<T>::receive(Node from, const AsyncMessage<T>& message) {
  if (message.vector.size() != x_.size()) return {};
  if (message.kind == AsyncMessage<T>::Kind::kReply) {
    if (!waiting_ || from != asked_ || message.number != number_) return {};
    waiting_ = false;
    average(message.vector);
    return {};
  }
  if (active_) return {};
  auto reply = std::make_shared<AsyncMessage<T>>();
  reply->kind = AsyncMessage<T>::Kind::kReply;
  reply->number = message.number;
  reply->vector.assign(x_.begin(), x_.end());
  average(message.vector);
  return {{from, std::move(reply)}};
}

// The same bits at both ends.
template <class T>
void AdPsgd<T>::average(std::span<const T> other) {
  for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = T(0.5) * (x_[i] + other[i]);
}

template <class T>
void AdPsgd<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  waiting_ = false;
}

template class AdPsgd<float>;
template class AdPsgd<double>;

}  // namespace starling::gossip

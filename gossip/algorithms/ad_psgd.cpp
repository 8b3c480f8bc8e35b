// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/ad_psgd.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip {
namespace {

// The same bits at both ends.
template <class T>
T half_way(T one, T other) {
  return T(0.5) * (one + other);
}

}  // namespace

template <class T>
std::vector<AsyncSend<T>> AdPsgd<T>::trained(std::span<const T> update, const Links& links,
                                             Rng& rng) {
  STARLING_CHECK(update.size() == x_.size());
  for (std::size_t i = 0; i < x_.size(); ++i) x_[i] += update[i];
  if (!active_ || request_ || links.receivers.empty()) return {};
  asked_ = links.receivers[rng.below(links.receivers.size())].node;
  auto request = std::make_shared<AsyncMessage<T>>();
  request->kind = AsyncMessage<T>::Kind::kRequest;
  request->number = ++number_;
  request->vector.assign(x_.begin(), x_.end());
  request_ = std::move(request);
  return {{asked_, request_}};
}

template <class T>
std::vector<AsyncSend<T>> AdPsgd<T>::receive(Node from, const AsyncMessage<T>& message) {
  if (message.vector.size() != x_.size()) return {};
  if (message.kind == AsyncMessage<T>::Kind::kReply) {
    if (!request_ || from != asked_ || message.number != number_) return {};
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const T asked = request_->vector[i];
      x_[i] = half_way(asked, message.vector[i]) + (x_[i] - asked);
    }
    request_.reset();
    return {};
  }
  if (active_) return {};
  auto reply = std::make_shared<AsyncMessage<T>>();
  reply->kind = AsyncMessage<T>::Kind::kReply;
  reply->number = message.number;
  reply->vector.assign(x_.begin(), x_.end());
  for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = half_way(x_[i], message.vector[i]);
  return {{from, std::move(reply)}};
}

template <class T>
void AdPsgd<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  request_.reset();
}

template class AdPsgd<float>;
template class AdPsgd<double>;

}  // namespace starling::gossip

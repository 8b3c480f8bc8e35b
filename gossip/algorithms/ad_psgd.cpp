// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/ad_psgd.h"

#include <algorithm>
#include <utility>

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
  std::vector<AsyncSend<T>> sends;
  if (active_ && !waiting() && !links.receivers.empty()) {
    const Node asked = links.receivers[rng.below(links.receivers.size())].node;
    auto request = std::make_shared<AsyncMessage<T>>();
    request->kind = AsyncMessage<T>::Kind::kRequest;
    request->number = ++number_;
    request->vector.assign(x_.begin(), x_.end());
    open_ = {asked, std::move(request)};
    sends.push_back({asked, open_.request});
  }
  for (std::size_t i = 0; i < x_.size(); ++i) x_[i] += update[i];
  return sends;
}

template <class T>
bool AdPsgd<T>::answers(const Question& question, Node from, const AsyncMessage<T>& reply) const {
  return question.request && question.asked == from && question.request->number == reply.number;
}

template <class T>
std::vector<AsyncSend<T>> AdPsgd<T>::receive(Node from, const AsyncMessage<T>& message) {
  if (message.vector.size() != x_.size()) return {};
  if (message.kind == AsyncMessage<T>::Kind::kReply) {
    Question& question = answers(given_up_, from, message) ? given_up_ : open_;
    if (!answers(question, from, message)) return {};
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const T asked = question.request->vector[i];
      x_[i] = half_way(asked, message.vector[i]) + (x_[i] - asked);
    }
    question = {};
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
void AdPsgd<T>::unanswered() {
  if (waiting()) given_up_ = std::exchange(open_, {});
}

template <class T>
void AdPsgd<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  open_ = {};
  given_up_ = {};
}

template <class T>
bool AdPsgd<T>::archive(Archive& state) {
  state.elements(std::span(x_));
  archive(state, open_);
  archive(state, given_up_);
  state(number_);
  return true;
}

template <class T>
void AdPsgd<T>::archive(Archive& state, Question& question) {
  bool asks = question.request != nullptr;
  state(asks);
  state(question.asked);
  if (!state.reading()) {
    if (asks) AsyncMessage<T>(*question.request).archive(state);
    return;
  }
  question.request = nullptr;
  if (!asks) return;
  auto request = std::make_shared<AsyncMessage<T>>();
  request->archive(state);
  state.expect(request->vector.size() == x_.size());
  question.request = std::move(request);
}

template class AdPsgd<float>;
template class AdPsgd<double>;

}  // namespace starling::gossip

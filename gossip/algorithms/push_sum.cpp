// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/push_sum.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip {
template <class T>
PushSum<T>::PushSum(bool lossy, Node members, std::span<const T> model)
    : members_(members), z_(model.begin(), model.end()) {
  if (lossy) ledger_.emplace(model.size(), members, true).reset(model);
}

template <class T>
std::vector<AsyncSend<T>> PushSum<T>::trained(std::span<const T> update, const Links& links, Rng&) {
  STARLING_CHECK(update.size() == z_.size());
  if (ledger_) {
    ledger_->settle();
    ledger_->add(update, ledger_->weight());
    ledger_->read<T>(z_);
  } else {
    for (std::size_t i = 0; i < z_.size(); ++i) z_[i] += update[i];
  }
  if (!ledger_ && weight() < MassLedger::kLeastWeight) return {};
  ++number_;
  return ledger_ ? push_totals(links) : push(links);
}

// z stays: pushing takes x and w in the same proportion.
template <class T>
std::vector<AsyncSend<T>> PushSum<T>::push(const Links& links) {
  std::vector<AsyncSend<T>> sends;
  came_.clear();
  const double whole = weight_;
  for (const topologies::Weight& receiver : links.receivers) {
    const double share = receiver.weight * whole;
    weight_ -= share;
    if (!sends.empty() && sends.back().message->scalar == share) {
      sends.push_back({receiver.node, sends.back().message});
      continue;
    }
    auto message = std::make_shared<AsyncMessage<T>>();
    message->number = number_;
    message->vector.assign(z_.begin(), z_.end());
    message->scalar = share;
    message->has_scalar = true;
    sends.push_back({receiver.node, std::move(message)});
  }
  return sends;
}

template <class T>
std::vector<AsyncSend<T>> PushSum<T>::push_totals(const Links& links) {
  std::vector<AsyncSend<T>> sends;
  double left = 1;  // of the mass before the first push
  for (const topologies::Weight& receiver : links.receivers) {
    const double share = ledger_->share(links, receiver);
    const auto total = ledger_->push(receiver.node, share / left);
    left -= share;
    auto message = std::make_shared<AsyncMessage<T>>();
    message->number = number_;
    message->packed.assign(total.begin(), total.end());
    sends.push_back({receiver.node, std::move(message)});
  }
  return sends;
}

template <class T>
bool PushSum<T>::brings_mass(Node from, const AsyncMessage<T>& message) const {
  const auto newest = newest_.find(from);
  if (newest != newest_.end() && message.number <= newest->second) return false;
  return message.number > 0 && ledger_->is_plausible(from, message.packed);
}

template <class T>
bool PushSum<T>::can_read(Node from, std::span<const std::byte> packed) const {
  return ledger_ ? ledger_->is_plausible(from, packed) : packed.empty();
}

template <class T>
bool PushSum<T>::can_weigh(Node from, double weight) const {
  if (ledger_) return true;
  const auto came = came_.find(from);
  const double before = came == came_.end() ? 0 : came->second;
  return weight > 0 && MassLedger::can_weigh(before + weight, members_);
}

template <class T>
std::optional<Unpacked<T>> PushSum<T>::unpack(Node from, const AsyncMessage<T>& message) const {
  if (!ledger_ || !brings_mass(from, message)) return std::nullopt;
  Unpacked<T> unpacked{.theirs = {z_.begin(), z_.end()}, .own = {z_.begin(), z_.end()}};
  ledger_->read_new<T>(from, message.packed, unpacked.theirs);
  return unpacked;
}

template <class T>
std::vector<AsyncSend<T>> PushSum<T>::receive(Node from, const AsyncMessage<T>& message) {
  if (ledger_) {
    if (!brings_mass(from, message)) return {};
    newest_[from] = message.number;
    ledger_->open(from);
    ledger_->pull(from, message.packed, {0, z_.size() + 1});
    ledger_->read<T>(z_);
    return {};
  }
  if (message.vector.size() != z_.size() || !(message.scalar > 0)) return {};
  came_[from] += message.scalar;
  weight_ += message.scalar;
  const T part = static_cast<T>(message.scalar / weight_);
  weight_ = std::min(weight_, MassLedger::most_weight(members_));
  for (std::size_t i = 0; i < z_.size(); ++i) z_[i] += part * (message.vector[i] - z_[i]);
  return {};
}

template <class T>
void PushSum<T>::forget(Node other) {
  if (ledger_) ledger_->forget(other);
  newest_.erase(other);
  came_.erase(other);
}

template <class T>
void PushSum<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, z_.begin());
  weight_ = 1;
  if (ledger_) ledger_->reset(model);
}

template <class T>
bool PushSum<T>::archive(Archive& state) {
  state.elements(std::span(z_));
  state(weight_);
  if (ledger_) ledger_->archive(state);
  state.map(came_, [&](double& weight) { state(weight); });
  state(number_);
  state.map(newest_, [&](std::uint64_t& number) { state(number); });
  return true;
}

template <class T>
void PushSum<T>::visit_state(StateVisitor& state) {
  if (!ledger_) return state.visit("weight", weight_);
  ledger_->visit_state(state);
  ledger_->read<T>(z_);
}

template class PushSum<float>;
template class PushSum<double>;

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/choco.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"

namespace starling::gossip {

template <class T>
Choco<T>::Choco(const AlgorithmOptions& options, std::uint64_t seed, Node node,
                std::span<const T> model)
    : gamma_(default_consensus_step(options, model.size())),
      adapt_first_(options.order == "adapt-then-combine"),
      seed_(seed),
      node_(node),
      x_(model.begin(), model.end()),
      copy_(model.size()),
      pull_(model.size()) {
  if (options.compressor == "none") {
    plain_.resize(model.size());
  } else {
    compressor_.emplace(options, model.size());
  }
}

template <class T>
void Choco<T>::combine() {
  for (std::size_t i = 0; i < x_.size(); ++i) {
    x_[i] = static_cast<T>(static_cast<double>(x_[i]) + gamma_ * pull_[i]);
  }
}

template <class T>
void Choco<T>::compress(std::uint64_t exchange) {
  thread_local std::vector<double> difference;
  difference.resize(x_.size());
  for (std::size_t i = 0; i < x_.size(); ++i) {
    difference[i] = static_cast<double>(x_[i]) - copy_[i];
  }
  if (compressor_) {
    Rng rng({.seed = seed_,
             .purpose = Purpose::kAlgorithm,
             .node = node_,
             .round = static_cast<std::uint32_t>(exchange)});
    compressor_->encode(difference, rng, packed_);
    message_.packed = packed_;
  } else {
    for (std::size_t i = 0; i < x_.size(); ++i) plain_[i] = static_cast<T>(difference[i]);
    message_.first = plain_;
  }
}

template <class T>
Result<double> Choco<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  STARLING_ASSIGN(const double loss, training.steps(x_, phase.rate, phase.steps));
  if (!adapt_first_) combine();
  compress(phase.exchange);
  return loss;
}

template <class T>
const Message<T>& Choco<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void Choco<T>::add_decoded(const Message<T>& message, double weight, std::span<double> sum) const {
  if (compressor_) {
    compressor_->add(message.packed, weight, sum);
    return;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += weight * static_cast<double>(message.first[i]);
  }
}

// Whether the same neighbours were heard in every exchange since the copies began. A neighbour that
// was never heard contributes nothing to pull_.
template <class T>
bool Choco<T>::knows_copies(std::span<const Received<T>> inbox) {
  std::vector<bool> heard;
  for (const Received<T>& received : inbox) heard.push_back(received.message != nullptr);
  if (!heard_) heard_ = heard;
  if (*heard_ != heard) lacks_ = true;
  return !lacks_;
}

template <class T>
void Choco<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  STARLING_CHECK(columns.begin == 0 && columns.end == x_.size());
  if (!knows_copies(inbox)) {
    std::ranges::fill(pull_, 0);
    add_decoded(message_, 1, copy_);
    return;
  }
  double whole = 0;
  for (const Received<T>& received : inbox) {
    if (received.message == nullptr) continue;
    add_decoded(*received.message, received.weight, pull_);
    whole += received.weight;
  }
  add_decoded(message_, -whole, pull_);
  add_decoded(message_, 1, copy_);
  if (adapt_first_) combine();
}

template <class T>
void Choco<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
}

template <class T>
void Choco<T>::regroup(const Plan&, const Links& links, const LocalPhase* trained) {
  node_ = links.node;
  std::ranges::fill(copy_, 0);
  std::ranges::fill(pull_, 0);
  heard_.reset();
  lacks_ = false;
  if (trained != nullptr) compress(trained->exchange);
}

template <class T>
std::vector<T> Choco<T>::decoded(const Message<T>& message) const {
  std::vector<double> difference(x_.size());
  add_decoded(message, 1, difference);
  constexpr double kLargest = static_cast<double>(std::numeric_limits<T>::max());
  std::vector<T> result;
  result.reserve(difference.size());
  for (const double value : difference) {
    result.push_back(static_cast<T>(std::clamp(value, -kLargest, kLargest)));
  }
  return result;
}

// The differences, since all that a message does is to add one to a copy.
template <class T>
std::optional<Unpacked<T>> Choco<T>::unpack(Node, const Message<T>& message) const {
  if (!compressor_) return std::nullopt;
  return Unpacked<T>{.theirs = decoded(message), .own = decoded(message_)};
}

template class Choco<float>;
template class Choco<double>;

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/sgp.h"

#include <algorithm>

#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {
namespace {

template <class T>
double mixed_weight(const Links& links, double own, std::span<const Received<T>> inbox) {
  double weight = links.self_weight * own;
  for (const Received<T>& received : inbox) {
    if (received.message != nullptr) weight += received.weight * received.message->scalar;
  }
  return weight;
}

}  // namespace

template <class T>
void stretch(std::span<T> x, std::span<const T> from, double factor) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = from[i] + static_cast<T>(factor) * (x[i] - from[i]);
  }
}

template <class T>
Result<double> Sgp<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  if (weight_ != 1) std::ranges::copy(z_, next_.begin());
  STARLING_ASSIGN(const double loss, training.steps(z_, phase.rate, phase.steps));
  if (weight_ != 1) stretch<T>(z_, next_, 1 / weight_);
  message_ = {.first = z_, .scalar = weight_, .has_scalar = true};
  return loss;
}

template <class T>
const Message<T>& Sgp<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void Sgp<T>::absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) {
  const double weight = mixed_weight(links, weight_, inbox);
  MixTerms<T>& terms = terms_of<T>({});
  for (const Received<T>& received : inbox) {
    if (received.message == nullptr) continue;
    terms.add(received.message->first.data(), received.weight * received.message->scalar / weight);
  }
  mix<T>(terms, z_.data(), z_.data(), next_.data(), columns);
}

template <class T>
void Sgp<T>::conclude(const Links& links, std::span<const Received<T>> inbox) {
  // More than can be is a liar's work: the others would take it for a lie of this node.
  weight_ = std::min(mixed_weight(links, weight_, inbox), MassLedger::most_weight(members_));
  std::swap(z_, next_);
}

template <class T>
void Sgp<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, z_.begin());
  weight_ = 1;
}

template <class T>
void Sgp<T>::regroup(const Plan& plan, const Links&, const LocalPhase* trained) {
  members_ = plan.nodes;
  if (trained != nullptr && weight_ != 1) stretch<T>(z_, next_, weight_);  // as u of weight 1
  weight_ = 1;
  message_.scalar = 1;
}

template class Sgp<float>;
template class Sgp<double>;
template void stretch(std::span<float>, std::span<const float>, double);
template void stretch(std::span<double>, std::span<const double>, double);

}  // namespace starling::gossip

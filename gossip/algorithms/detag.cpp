// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/detag.h"

#include <algorithm>
#include <cmath>

namespace starling::gossip {

double acceleration(double slem) {
  const double root = std::sqrt(std::max(0.0, 1 - slem * slem));
  return (1 - root) / (1 + root);
}

// With q = sqrt(a), R rounds scale the eigenvalue -rho by q^R (1 + R (1 + q)), all others by no
// more.
int accelerated_rounds(double slem) {
  constexpr int kMost = 10000;
  const double q = std::sqrt(acceleration(slem));
  int rounds = 1;
  while (rounds < kMost && std::pow(q, rounds) * (1 + rounds * (1 + q)) > 0.25) ++rounds;
  return rounds;
}

template <class T>
Detag<T>::Detag(double slem, int rounds, std::span<const T> model)
    : acceleration_(static_cast<T>(acceleration(slem))),
      rounds_(static_cast<std::uint64_t>(rounds)),
      x_(model.begin(), model.end()),
      mixed_x_{x_, x_},
      mixed_y_{Vector<T>(x_.size()), Vector<T>(x_.size())},
      sum_(x_.size()),
      previous_(x_.size()),
      sample_(x_.size()) {}

template <class T>
double Detag<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  double loss = 0;
  for (int k = 0; k < phase.steps; ++k) {
    loss += training.gradient(x_, sample_);
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += sample_[i];
  }
  samples_ += phase.steps;
  rate_ = phase.rate;
  round_ = phase.exchange % rounds_;
  message_ = {.first = mixed_x_.now, .second = mixed_y_.now};
  return loss;
}

template <class T>
const Message<T>& Detag<T>::message(std::size_t) const {
  return message_;
}

// z' = z + (1 + a) (W z - z) + a (z - z_before), into the place of z_before.
template <class T>
void Detag<T>::mix_round(Gossip& z, std::span<const Received<T>> inbox,
                         std::span<const T> Message<T>::*part, Columns columns) {
  const MixTerms<T>& terms = terms_of(inbox, part);
  for_parts(columns, [&](Columns piece) {
    T flow[kFlowColumns];
    mix_flow<T>(terms, z.now.data(), flow, piece);
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      const T ahead = acceleration_ * (z.now[i] - z.before[i]);
      z.before[i] = z.now[i] + ((1 + acceleration_) * flow[i - piece.begin] + ahead);
    }
  });
}

template <class T>
void Detag<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  mix_round(mixed_x_, inbox, &Message<T>::first, columns);
  mix_round(mixed_y_, inbox, &Message<T>::second, columns);
}

template <class T>
void Detag<T>::conclude(const Links&, std::span<const Received<T>>) {
  std::swap(mixed_x_.now, mixed_x_.before);
  std::swap(mixed_y_.now, mixed_y_.before);
  if (round_ + 1 == rounds_) end_phase();
}

template <class T>
void Detag<T>::end_phase() {
  const T inverse = static_cast<T>(1 / samples_), rate = static_cast<T>(rate_);
  for (std::size_t i = 0; i < x_.size(); ++i) {
    x_[i] = mixed_x_.now[i] - rate * mixed_y_.now[i];
    const T gradient = inverse * sum_[i];
    mixed_y_.now[i] += gradient - previous_[i];
    previous_[i] = gradient;
    sum_[i] = 0;
  }
  samples_ = 0;
  std::ranges::copy(x_, mixed_x_.now.begin());
  std::ranges::copy(x_, mixed_x_.before.begin());
  std::ranges::copy(mixed_y_.now, mixed_y_.before.begin());
}

template <class T>
void Detag<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  std::ranges::copy(model, mixed_x_.now.begin());
  std::ranges::copy(model, mixed_x_.before.begin());
  for (Vector<T>* zeroed : {&mixed_y_.now, &mixed_y_.before, &sum_, &previous_}) {
    std::ranges::fill(*zeroed, T{0});
  }
  samples_ = 0;
}

template class Detag<float>;
template class Detag<double>;

}  // namespace starling::gossip

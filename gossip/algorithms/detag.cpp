// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/detag.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gossip/algorithms/make_algorithm.h"

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
    : acceleration_(acceleration(slem)),
      rounds_(static_cast<std::uint64_t>(rounds)),
      x_(model.begin(), model.end()),
      mixed_x_{x_, x_},
      mixed_y_{Vector<double>(x_.size()), Vector<double>(x_.size())},
      shown_y_(x_.size()),
      sum_(x_.size()),
      previous_(x_.size()),
      sample_(x_.size()) {}

template <class T>
Result<double> Detag<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  double loss = 0;
  for (int k = 0; k < phase.steps; ++k) {
    STARLING_ASSIGN(const double of_step, training.gradient(x_, sample_));
    loss += of_step;
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += sample_[i];
  }
  samples_ += phase.steps;
  show(phase);
  return loss;
}

// What is sent in this exchange.
template <class T>
void Detag<T>::show(const LocalPhase& phase) {
  rate_ = phase.rate;
  round_ = phase.exchange % rounds_;
  std::ranges::transform(mixed_y_.now, shown_y_.begin(),
                         [](double y) { return static_cast<T>(y); });
  message_ = {.first = mixed_x_.now, .second = shown_y_};
}

template <class T>
const Message<T>& Detag<T>::message(std::size_t) const {
  return message_;
}

// z' = z + (1 + a) (W z - z) + a (z - z_before), into the place of z_before.
template <class T>
void Detag<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  const double a = acceleration_;
  const auto mix_round = [&](auto& z, const Vector<T>& shown,
                             std::span<const T> Message<T>::*part) {
    const MixTerms<T>& terms = terms_of(inbox, part);
    for_parts(columns, [&](Columns piece) {
      double flow[kFlowColumns];
      mix_flow_wide<T>(terms, shown.data(), flow, piece);
      for (std::size_t i = piece.begin; i < piece.end; ++i) {
        const double now = static_cast<double>(z.now[i]);
        const double before = static_cast<double>(z.before[i]);
        z.before[i] = static_cast<std::remove_reference_t<decltype(z.before[i])>>(
            now + ((1 + a) * flow[i - piece.begin] + a * (now - before)));
      }
    });
  };
  mix_round(mixed_x_, mixed_x_.now, &Message<T>::first);
  mix_round(mixed_y_, shown_y_, &Message<T>::second);
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
    x_[i] = mixed_x_.now[i] - rate * static_cast<T>(mixed_y_.now[i]);
    const T gradient = inverse * sum_[i];
    mixed_y_.now[i] += static_cast<double>(gradient) - static_cast<double>(previous_[i]);
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
  std::ranges::fill(mixed_y_.now, 0);
  std::ranges::fill(mixed_y_.before, 0);
  std::ranges::fill(sum_, T{0});
  std::ranges::fill(previous_, T{0});
  samples_ = 0;
}

template <class T>
void Detag<T>::regroup(const Plan& plan, const Links&, const LocalPhase* trained) {
  acceleration_ = acceleration(plan.slem);
  rounds_ = static_cast<std::uint64_t>(plan.options.gossip_rounds);
  std::ranges::copy(mixed_x_.now, mixed_x_.before.begin());
  std::ranges::copy(previous_, mixed_y_.now.begin());
  std::ranges::copy(previous_, mixed_y_.before.begin());
  if (trained != nullptr) show(*trained);
}

template <class T>
bool Detag<T>::archive(Archive& state) {
  for (Vector<T>* vector : {&x_, &mixed_x_.now, &mixed_x_.before, &sum_, &previous_}) {
    state.elements(std::span(*vector));
  }
  state.elements(std::span(mixed_y_.now));
  state.elements(std::span(mixed_y_.before));
  state(samples_);
  return true;
}

template class Detag<float>;
template class Detag<double>;

}  // namespace starling::gossip

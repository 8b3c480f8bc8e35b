// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fedopt.h"

#include "core/strategy/parts.h"

namespace starling::strategy {
namespace {

constexpr const char* kSecondMoment = "second_moment";

}  // namespace

template <class T>
State<T> FedOptServer<T>::initial_state(std::size_t elements) const {
  State<T> state = state_of<T>(kSecondMoment, elements, static_cast<T>(tau_ * tau_));
  if (kind_ != FedOptKind::kAdagrad) state.vectors[kMomentum].resize(elements);
  return state;
}

template <class T>
double FedOptServer<T>::second_moment(double v, double delta) const {
  const double square = delta * delta;
  switch (kind_) {
    case FedOptKind::kAdagrad:
      return v + square;
    case FedOptKind::kAdam:
      return beta2_ * v + (1 - beta2_) * square;
    case FedOptKind::kYogi:
      if (v == square) return v;
      return v > square ? v - (1 - beta2_) * square : v + (1 - beta2_) * square;
  }
  STARLING_CHECK(false);
}

template <class T>
Result<void> FedOptServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                    State<T>& state, const ServerRound& round) const {
  STARLING_ASSIGN(const std::span<T> v, vector_of(state, kSecondMoment, model.size()));
  std::span<T> m;
  if (kind_ != FedOptKind::kAdagrad) {
    STARLING_ASSIGN(m, vector_of(state, kMomentum, model.size()));
  }
  STARLING_TRY(update_model(next, round.report, [&](std::size_t i, double delta) {
    double direction = delta;
    if (!m.empty()) {
      m[i] = static_cast<T>(beta1_ * m[i] + (1 - beta1_) * delta);
      direction = m[i];
    }
    v[i] = static_cast<T>(second_moment(v[i], delta));
    return model[i] + learning_rate_ * direction / (std::sqrt(static_cast<double>(v[i])) + tau_);
  }));
  return check_finite(state);
}

template class FedOptServer<float>;
template class FedOptServer<double>;

}  // namespace starling::strategy

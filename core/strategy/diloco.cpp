// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/diloco.h"

#include "core/strategy/parts.h"

namespace starling::strategy {
namespace {

constexpr const char* kFirst = "optimizer.first";
constexpr const char* kSecond = "optimizer.second";
constexpr const char* kSteps = "optimizer.steps";
constexpr double kStepsMax = 0x1p53;  // exact in a double

template <class T>
linalg::AlignedVector<T> vector_or_none(const State<T>& state, const char* name) {
  const auto found = state.vectors.find(name);
  return found == state.vectors.end() ? linalg::AlignedVector<T>() : found->second;
}

// The trainer checks the vectors' sizes.
template <class T>
Result<train::OptimizerState<T>> optimizer_from(const State<T>& state) {
  const auto found = state.scalars.find(kSteps);
  const double steps = found == state.scalars.end() ? 0 : found->second;
  if (!(steps >= 0 && steps <= kStepsMax)) {
    return rejected("bad-state", fmt::format("this client's '{}' is {}", kSteps, steps));
  }
  return train::OptimizerState<T>{.first = vector_or_none(state, kFirst),
                                  .second = vector_or_none(state, kSecond),
                                  .steps = static_cast<std::uint64_t>(steps)};
}

template <class T>
State<T> state_from(train::OptimizerState<T> optimizer) {
  State<T> state;
  if (!optimizer.first.empty()) state.vectors[kFirst] = std::move(optimizer.first);
  if (!optimizer.second.empty()) state.vectors[kSecond] = std::move(optimizer.second);
  if (optimizer.steps > 0) state.scalars[kSteps] = static_cast<double>(optimizer.steps);
  return state;
}

}  // namespace

template <class T>
std::size_t DiLoCoClient<T>::state_vectors() const {
  if (optimizer_ == "sgd") return 0;
  return optimizer_ == "adam" || optimizer_ == "adamw" ? 2 : 1;
}

template <class T>
Result<ClientResult<T>> DiLoCoClient<T>::round(const ClientRound<T>& round,
                                               LocalTraining<T>& training) const {
  STARLING_ASSIGN(train::OptimizerState<T> optimizer, optimizer_from(round.state));
  ClientResult<T> result;
  STARLING_TRY(train_difference(round, training, {.optimizer = &optimizer}, result));
  result.state = state_from(std::move(optimizer));
  return result;
}

template <class T>
State<T> DiLoCoServer<T>::initial_state(std::size_t elements) const {
  return state_of<T>(kMomentum, elements);
}

template <class T>
Result<void> DiLoCoServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                    State<T>& state, const ServerRound& round) const {
  STARLING_ASSIGN(const std::span<T> b, vector_of(state, kMomentum, model.size()));
  STARLING_TRY(update_model(next, round.report, [&](std::size_t i, double delta) {
    b[i] = static_cast<T>(momentum_ * b[i] + delta);
    return model[i] + learning_rate_ * (delta + momentum_ * b[i]);
  }));
  return check_finite(state);
}

template class DiLoCoClient<float>;
template class DiLoCoClient<double>;
template class DiLoCoServer<float>;
template class DiLoCoServer<double>;

}  // namespace starling::strategy

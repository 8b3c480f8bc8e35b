// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/scaffold.h"

#include "core/strategy/parts.h"

namespace starling::strategy {
namespace {

constexpr const char* kControl = "control";

}  // namespace

template <class T>
Result<ClientResult<T>> ScaffoldClient<T>::round(const ClientRound<T>& round,
                                                 LocalTraining<T>& training) const {
  const std::size_t d = round.model.size();
  STARLING_ASSIGN(linalg::AlignedVector<T> own, remembered(round.state, kControl, d));
  STARLING_ASSIGN(const std::span<const T> common, input(round, kControl));
  ClientResult<T> result{.payload = linalg::AlignedVector<T>(2 * d)};
  const std::span<T> delta = std::span(result.payload).first(d);
  const std::span<T> change = std::span(result.payload).last(d);  // c - c_k until it is c_k' - c_k
  for (std::size_t i = 0; i < d; ++i) change[i] = common[i] - own[i];
  const auto correct = [change](std::span<const T>, std::span<T> g) { add<T>(g, change); };
  STARLING_TRY(train_difference(round, training, {.correct = correct}, result));
  if (with_full_gradient_) {
    STARLING_TRY(training.full_gradient(round.model, change));
    for (std::size_t i = 0; i < d; ++i) change[i] -= own[i];
  } else {
    STARLING_TRY(check_rate(result.work));
    const double way = static_cast<double>(result.work.steps) * result.work.rate;
    // From 0, so that what did not change is 0 and not -0, which an update cannot leave out.
    for (std::size_t i = 0; i < d; ++i) {
      change[i] = static_cast<T>(0 - delta[i] / way - common[i]);
    }
  }
  add<T>(own, change);
  result.state.vectors[kControl] = std::move(own);
  return result;
}

template <class T>
std::vector<std::string> ScaffoldServer<T>::sends() const {
  return {kControl};
}

template <class T>
std::vector<std::string> ScaffoldServer<T>::receives() const {
  return {kModelVector, kControl};
}

template <class T>
State<T> ScaffoldServer<T>::initial_state(std::size_t elements) const {
  return state_of<T>(kControl, elements);
}

template <class T>
Result<void> ScaffoldServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                      State<T>& state, const ServerRound& round) const {
  STARLING_ASSIGN(const std::span<T> c, vector_of(state, kControl, model.size()));
  STARLING_TRY(update_model(next, round.report, [&](std::size_t i, double delta) {
    return model[i] + learning_rate_ * delta;
  }));
  const double share = participation(round);
  return update_vector(c, round.report.vectors.at(1),
                       [&](std::size_t i, double change) { return c[i] + share * change; });
}

template class ScaffoldClient<float>;
template class ScaffoldClient<double>;
template class ScaffoldServer<float>;
template class ScaffoldServer<double>;

}  // namespace starling::strategy

// SPDX-License-Identifier: Apache-2.0
// What several strategies do alike.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/check.h"
#include "core/strategy/strategy.h"

namespace starling::strategy {

inline constexpr const char* kMomentum = "momentum";  // of a server's state

// --- clients
// ----------------------------------------------------------------------------

// Trains from x and leaves y - x in the first [d] of the payload, which is made that large where it
// is empty. A payload that has more room keeps it, so hooks may use the rest.
template <class T>
[[nodiscard]] Result<void> train_difference(const ClientRound<T>& round, LocalTraining<T>& training,
                                            const train::TrainingHooks<T>& hooks,
                                            ClientResult<T>& result) {
  const std::span<const T> x = round.model;
  if (result.payload.empty()) result.payload.resize(x.size());
  const std::span<T> y = std::span(result.payload).first(x.size());
  std::ranges::copy(x, y.begin());
  STARLING_ASSIGN(result.work, training.train(y, hooks));
  for (std::size_t i = 0; i < x.size(); ++i) y[i] -= x[i];
  return {};
}

// x <- factor x
template <class T>
void scale(std::span<T> x, double factor) {
  for (T& value : x) value = static_cast<T>(value * factor);
}

// y <- y + x
template <class T>
void add(std::span<T> y, std::span<const T> x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
}

// The gradient of mu/2 |y - x|^2 is added to each step's; no hook where mu is 0. Borrows x.
template <class T>
train::TrainingHooks<T> proximal_hooks(double mu, std::span<const T> x) {
  if (mu == 0) return {};
  return {.correct = [factor = static_cast<T>(mu), x](std::span<const T> y, std::span<T> g) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] += factor * (y[i] - x[i]);
  }};
}

// A vector of a client's state; zeros before its first round. "bad-state" where the size is
// another.
template <class T>
[[nodiscard]] Result<linalg::AlignedVector<T>> remembered(const State<T>& state,
                                                          const std::string& name,
                                                          std::size_t elements) {
  const auto found = state.vectors.find(name);
  if (found == state.vectors.end()) return linalg::AlignedVector<T>(elements);
  if (found->second.size() == elements) return found->second;
  return rejected("bad-state", fmt::format("this client's '{}' has {} values; the model has {}",
                                           name, found->second.size(), elements));
}

// What the server sends under a name. "missing-input" where it does not, or of another size.
template <class T>
[[nodiscard]] Result<std::span<const T>> input(const ClientRound<T>& round,
                                               const std::string& name) {
  const auto found = round.inputs.find(name);
  if (found != round.inputs.end() && found->second.size() == round.model.size()) {
    return found->second;
  }
  return rejected("missing-input", fmt::format("the task brings no '{}' of the model's {} values",
                                               name, round.model.size()));
}

// For strategies that divide by eta.
[[nodiscard]] inline Result<void> check_rate(const LocalWork& work) {
  if (work.rate > 0 && work.steps > 0) return {};
  return rejected("setting-invalid", "this strategy needs a learning rate above 0 in every round");
}

// --- servers
// ----------------------------------------------------------------------------

// A vector of the server's state. "bad-state" where there is none of the model's size.
template <class T>
[[nodiscard]] Result<std::span<T>> vector_of(State<T>& state, const std::string& name,
                                             std::size_t elements) {
  const auto found = state.vectors.find(name);
  if (found != state.vectors.end() && found->second.size() == elements) {
    return std::span<T>(found->second);
  }
  return rejected("bad-state", fmt::format("the strategy's state has no '{}' of the model's {} "
                                           "values",
                                           name, elements));
}

// The initial state of a strategy that remembers one vector.
template <class T>
State<T> state_of(const std::string& name, std::size_t elements, T value = 0) {
  return {.vectors = {{name, linalg::AlignedVector<T>(elements, value)}}};
}

// The mean of a scalar that must be positive at each client. "missing-scalar", "bad-scalar".
[[nodiscard]] inline Result<double> positive_scalar(const aggregate::Report& report,
                                                    const std::string& name) {
  const auto found = report.scalars.find(name);
  if (found == report.scalars.end()) {
    return rejected("missing-scalar", fmt::format("no contribution brought '{}'", name));
  }
  if (std::isfinite(found->second) && found->second > 0) return found->second;
  return rejected("bad-scalar",
                  fmt::format("the mean of '{}' is {}; it must be above 0", name, found->second));
}

// |S| / N; at most 1, because a client may have been revoked since it contributed.
inline double participation(const ServerRound& round) {
  const auto contributions = static_cast<double>(round.report.contributions);
  return contributions / std::max(contributions, static_cast<double>(round.population));
}

[[nodiscard]] inline Error not_finite() {
  return rejected("diverged",
                  "the next model or the strategy's state is not finite; use a smaller learning "
                  "rate");
}

// Stores update(i, mean[i]) in vector[i] for each i. "diverged" where one is not finite.
template <class T, class Update>
[[nodiscard]] Result<void> update_vector(std::span<T> vector, aggregate::Means& mean,
                                         Update&& update) {
  STARLING_CHECK(mean.size() == vector.size());
  bool finite = true;
  mean.consume([&](std::size_t begin, std::span<const double> values) {
    for (std::size_t j = 0; j < values.size(); ++j) {
      const T next = static_cast<T>(update(begin + j, values[j]));
      vector[begin + j] = next;
      finite &= std::isfinite(next);
    }
  });
  if (finite) return {};
  return not_finite();
}

// The next model: update(i, mean[i]) for each i, of the contributions' first vectors.
template <class T, class Update>
[[nodiscard]] Result<void> update_model(linalg::AlignedVector<T>& next, aggregate::Report& report,
                                        Update&& update) {
  bool finite = true;
  report.vectors.at(0).consume([&](std::size_t begin, std::span<const double> values) {
    next.resize(begin + values.size());
    T* const out = next.data() + begin;
    for (std::size_t j = 0; j < values.size(); ++j) {
      out[j] = static_cast<T>(update(begin + j, values[j]));
      finite &= std::isfinite(out[j]);
    }
  });
  if (finite) return {};
  return not_finite();
}

// "diverged" where a vector of the state is not finite.
template <class T>
[[nodiscard]] Result<void> check_finite(const State<T>& state) {
  for (const auto& [name, vector] : state.vectors) {
    bool finite = true;
    for (const T value : vector) finite &= std::isfinite(value);
    if (!finite) return not_finite();
  }
  return {};
}

}  // namespace starling::strategy

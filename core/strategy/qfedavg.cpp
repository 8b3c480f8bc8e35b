// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/qfedavg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/strategy/parts.h"

namespace starling::strategy {
namespace {

constexpr const char* kCurvature = "curvature";
constexpr double kLossMin = 1e-10;
constexpr double kStepResolution = 0x1p-40;  // of x: below what a float of 2^-16 resolves

double squared_norm(auto values) {
  double sum = 0;
  for (const auto value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

}  // namespace

template <class T>
Result<ClientResult<T>> QFedAvgClient<T>::round(const ClientRound<T>& round,
                                                LocalTraining<T>& training) const {
  STARLING_ASSIGN(const double mean_loss, training.loss(round.model));
  const double loss = std::max(mean_loss, kLossMin);
  ClientResult<T> result;
  STARLING_TRY(train_difference(round, training, {}, result));
  STARLING_TRY(check_rate(result.work));
  const double weight = std::pow(loss, q_);
  const double square = squared_norm(std::span<const T>(result.payload));
  const double curvature = q_ * std::pow(loss, q_ - 1) * square / result.work.rate + weight;
  // Above 0 where the powers are not: the server then says what is too small.
  result.scalars[kCurvature] = std::max(curvature, std::numeric_limits<double>::min());
  scale<T>(result.payload, weight);
  return result;
}

template <class T>
std::vector<std::string> QFedAvgServer<T>::scalars() const {
  return {kCurvature};
}

template <class T>
Result<void> QFedAvgServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                     State<T>&, const ServerRound& round) const {
  STARLING_ASSIGN(const double curvature, positive_scalar(round.report, kCurvature));
  if (round.report.resolution > kStepResolution * curvature) {
    return rejected("values-too-small",
                    "the clients' losses to the power strategy.q are too small for float32; "
                    "use a smaller strategy.q");
  }
  return update_model(next, round.report, [&](std::size_t i, double mean) {
    return model[i] + learning_rate_ * mean / curvature;
  });
}

template class QFedAvgClient<float>;
template class QFedAvgClient<double>;
template class QFedAvgServer<float>;
template class QFedAvgServer<double>;

}  // namespace starling::strategy

// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/robust_mixing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/base/check.h"

namespace starling::gossip {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Sums of the same weights in another order are equal within this.
constexpr double kWeightTolerance = 1e-6;
// Far: so many times as far as the farthest neighbour that cannot be one of the bad; differences
// below this part of the model's norm are never far, nodes may agree almost exactly.
constexpr double kTimesFar = 8;
constexpr double kNormShare = 1e-3;

// The sum of term(i) in double over eight lanes: an order that is fixed, and that vectorizes.
template <class Term>
double sum_in_lanes(std::size_t size, const Term& term) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::size_t lane = 0; i < size; ++i, ++lane) lanes[lane] += term(i);
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

// The difference is taken in T, as mixing takes it: what overflows there is infinitely far.
template <class T>
double distance(const T* theirs, std::span<const T> own) {
  const T* const x = own.data();
  const double squares = sum_in_lanes(own.size(), [=](std::size_t i) {
    const auto difference = static_cast<double>(static_cast<T>(theirs[i] - x[i]));
    return difference * difference;
  });
  return std::isfinite(squares) ? std::sqrt(squares) : kInfinity;
}

template <class T>
double norm(std::span<const T> x) {
  return std::sqrt(sum_in_lanes(x.size(), [x](std::size_t i) {
    const auto value = static_cast<double>(x[i]);
    return value * value;
  }));
}

}  // namespace

template <class T>
double RobustMixing<T>::bad_weight(const Links& links) {
  weights_.clear();
  for (const topologies::Weight& sender : links.senders) weights_.push_back(sender.weight);
  const auto bad = std::min(weights_.size(), static_cast<std::size_t>(options_.bad));
  std::ranges::sort(weights_, std::greater());
  return std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(bad),
                         0.0);
}

template <class T>
void RobustMixing<T>::bound(MixTerms<T>& terms, std::span<const T> x, double bad_weight) {
  STARLING_CHECK(is_on());
  report_.clear();
  for (const T* vector : terms.vectors) report_.push_back({.distance = distance(vector, x)});
  order_.resize(report_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, [this](std::size_t a, std::size_t b) {
    const double one = report_[a].distance, other = report_[b].distance;
    return one != other ? one < other : a < b;
  });
  // What is farther than the farthest weight b leaves tells who is far, under either rule.
  remove(terms, bad_weight);
  find_far(x);
  if (options_.rule == "clip") clip(terms, bad_weight);

  std::size_t mixed = 0;
  for (std::size_t k = 0; k < report_.size(); ++k) {
    const T weight = static_cast<T>(static_cast<double>(terms.weights[k]) * report_[k].kept);
    if (!(weight >= std::numeric_limits<T>::min())) report_[k].kept = 0;
    if (report_[k].kept == 0) continue;
    terms.vectors[mixed] = terms.vectors[k];
    terms.weights[mixed] = weight;
    ++mixed;
  }
  terms.vectors.resize(mixed);
  terms.weights.resize(mixed);
}

template <class T>
void RobustMixing<T>::clip(const MixTerms<T>& terms, double bad_weight) {
  const double enough = 2 * bad_weight * (1 - kWeightTolerance);
  double beyond = 0;
  std::size_t k = order_.size();
  while (k > 0 && beyond < enough) beyond += static_cast<double>(terms.weights[order_[--k]]);
  const double tau = beyond < enough || k == 0 ? 0 : report_[order_[k - 1]].distance;
  for (Bounded& neighbour : report_) {
    if (neighbour.distance == kInfinity) {
      neighbour.kept = 0;
    } else {
      neighbour.kept = neighbour.distance <= tau ? 1 : tau / neighbour.distance;
    }
  }
}

template <class T>
void RobustMixing<T>::remove(const MixTerms<T>& terms, double bad_weight) {
  double left = bad_weight;
  for (std::size_t k = order_.size(); k-- > 0;) {
    const double weight = static_cast<double>(terms.weights[order_[k]]);
    Bounded& neighbour = report_[order_[k]];
    const bool is_removed = left > 0 && weight <= left + kWeightTolerance * bad_weight;
    neighbour.kept = is_removed ? 0 : (weight - left) / weight;
    left = is_removed ? left - weight : 0;
    if (left <= kWeightTolerance * bad_weight) left = 0;
    if (neighbour.distance == kInfinity) neighbour.kept = 0;
  }
}

template <class T>
void RobustMixing<T>::find_far(std::span<const T> x) {
  double farthest_kept = -1;
  for (const Bounded& neighbour : report_) {
    if (neighbour.kept > 0) farthest_kept = std::max(farthest_kept, neighbour.distance);
  }
  const double limit = farthest_kept < 0
                           ? std::numeric_limits<double>::max()
                           : kTimesFar * std::max(farthest_kept, kNormShare * (1 + norm(x)));
  for (Bounded& neighbour : report_) neighbour.is_far = neighbour.distance > limit;
}

template class RobustMixing<float>;
template class RobustMixing<double>;

}  // namespace starling::gossip

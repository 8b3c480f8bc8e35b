// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/patience.h"

#include <algorithm>
#include <cmath>

namespace starling::gossip {
namespace {

constexpr double kFirst = 10;
constexpr double kBackoffMax = 1 << 20;

}  // namespace

double Patience::seconds(double work, double deadline, double least) const {
  if (!learned_ && work == 0) return deadline;
  // Without slack, waits that never vary would end a rounding error too early.
  const double slack = std::max({4 * deviation_, work, mean_ / 4});
  const double expected = learned_ ? mean_ + slack : kFirst * work;
  return std::min(deadline, backoff_ * std::max(least, expected));
}

void Patience::learn(double waited) {
  backoff_ = 1;
  if (!learned_) {
    learned_ = true;
    mean_ = waited;
    deviation_ = waited / 2;
    return;
  }
  deviation_ += (std::abs(waited - mean_) - deviation_) / 4;
  mean_ += (waited - mean_) / 8;
}

void Patience::give_up() { backoff_ = std::min(2 * backoff_, kBackoffMax); }

void Patience::archive(Archive& state) {
  state(learned_);
  state(mean_);
  state(deviation_);
  state(backoff_);
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/ahead_bound.h"

#include <algorithm>

namespace starling::gossip {

using protocol::Exchange;

namespace {

// Nobody who does not wait for us is more times as fast, and a little further.
constexpr double kFactor = 16;
constexpr Exchange kSlack = 8;
constexpr double kExchangesMax = 1e18;
constexpr int kUsualInARow = 8;  // more than a link holds messages of

}  // namespace

void AheadBound::in_step(Exchange next, TimePoint now, Duration excess) {
  usual_ = excess > Duration::zero() ? 0 : usual_ + 1;
  excess_ = usual_ < kUsualInARow ? excess_ + excess : Duration::zero();
  in_step_ = Since{next, now - excess_};
}

void AheadBound::gone_to(Exchange next, Duration pace, TimePoint now) {
  if (in_step_ && next > in_step_->next) {
    const double left_out = static_cast<double>(next - in_step_->next);
    const double used = left_out * to_seconds(pace) / kFactor;
    excess_ = from_seconds(std::max(0.0, to_seconds(now - in_step_->at) - used));
  }
  usual_ = 0;
  in_step_ = Since{next, now - excess_};
}

Exchange AheadBound::explained(const Since& since, Duration pace, double factor, TimePoint now) {
  const double time = std::max(0.0, to_seconds(now - since.at));
  const double exchanges = factor * time / std::max(to_seconds(pace), 1e-9);
  return since.next + static_cast<Exchange>(std::min(exchanges, kExchangesMax));
}

std::optional<Exchange> AheadBound::alone(std::optional<Duration> pace, TimePoint now) const {
  if (!in_step_ || !pace) return std::nullopt;
  return explained({in_step_->next, in_step_->at + excess_}, *pace, 1, now);
}

std::optional<Exchange> AheadBound::confirmed(std::optional<Duration> pace, TimePoint now,
                                              Exchange slack) const {
  if (!in_step_ || !pace) return std::nullopt;
  return explained(*in_step_, *pace, kFactor, now) + kSlack + slack;
}

}  // namespace starling::gossip

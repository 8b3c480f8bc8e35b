// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/usual_distance.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace starling::gossip {
namespace {

constexpr double kTimesUsual = 16;
constexpr double kTimesNorm = 8;
constexpr double kTimesNormAtFirst = 1000;
constexpr std::size_t kSeenAtLeast = 8;

struct Measured {
  double distance = 0;
  double norm = 0;  // of one's own, and 1
};

Measured measure(std::span<const float> theirs, std::span<const float> own) {
  STARLING_CHECK(theirs.size() == own.size());
  double squares = 0;
  double own_squares = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double mine = static_cast<double>(own[i]);
    const double difference = static_cast<double>(theirs[i]) - mine;
    squares += difference * difference;
    own_squares += mine * mine;
  }
  return {std::sqrt(squares), 1 + std::sqrt(own_squares)};
}

}  // namespace

UsualDistance::Copied UsualDistance::judge_copied(std::span<const float> theirs,
                                                  std::span<const float> own,
                                                  protocol::Exchange ours) {
  const Measured measured = measure(theirs, own);
  if (measured.distance <= kTimesNorm * measured.norm) return Copied::kNear;
  // What is not a number is within nothing.
  const bool may_be =
      ours <= kSeenAtLeast && measured.distance <= kTimesNormAtFirst * measured.norm;
  return may_be ? Copied::kSuspect : Copied::kRefused;
}

bool UsualDistance::accepts(protocol::Member from, std::span<const float> theirs,
                            std::span<const float> own) {
  const Measured measured = measure(theirs, own);
  distance_ = measured.distance;
  limit_ = limit_of(from, measured.norm);
  if (!(distance_ <= limit_)) return false;  // what is not a number is not usual
  if (distance_ > kTimesNorm * measured.norm) suspect_ = from;
  by_sender_[from].add(distance_);
  of_all_.add(distance_);
  return true;
}

double UsualDistance::limit_of_mean(std::span<const float> own) const {
  const double usual = of_all_.size() > 0 ? kTimesUsual * of_all_.median() : 0;
  return std::max(kTimesNorm * measure(own, own).norm, usual);
}

double UsualDistance::limit_of(protocol::Member from, double norm) const {
  if (of_all_.size() < kSeenAtLeast) return kTimesNormAtFirst * norm;
  const auto of_sender = by_sender_.find(from);
  const double of_this = of_sender != by_sender_.end() ? of_sender->second.median() : 0;
  return std::max(kTimesNorm * norm, kTimesUsual * std::max(of_this, of_all_.median()));
}

void UsualDistance::forget_members() {
  by_sender_.clear();
  suspect_.reset();
}

}  // namespace starling::gossip

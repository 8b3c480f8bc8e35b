// SPDX-License-Identifier: Apache-2.0
// What was pushed along an edge and is not confirmed: it may be on its way, or lost with a
// neighbour of which nobody knows yet that it was cut off.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

namespace starling::gossip {

class UnconfirmedPushes {
 public:
  // `total`: the weight ever pushed there. Numbers ascend.
  void sent(std::uint64_t number, double total) { pushes_.emplace_back(number, total); }
  // And all before it. Another number than one of these changes nothing.
  void confirmed(std::uint64_t number) {
    if (pushes_.empty() || number > pushes_.back().first) return;
    while (!pushes_.empty() && pushes_.front().first <= number) {
      confirmed_ = pushes_.front().second;
      pushes_.pop_front();
    }
  }
  // None of them is waited for.
  void forget() {
    if (!pushes_.empty()) confirmed_ = pushes_.back().second;
    pushes_.clear();
  }
  // Both ends of the edge begin at 0 again.
  void restart() {
    pushes_.clear();
    confirmed_ = 0;
  }
  // Whether another one of this weight may be pushed.
  bool has_room(double weight, double most) const {
    return pushes_.empty() || (pushes_.size() < kPushesMax && this->weight() + weight <= most);
  }
  double weight() const { return pushes_.empty() ? 0 : pushes_.back().second - confirmed_; }

 private:
  static constexpr std::size_t kPushesMax = 1024;
  std::deque<std::pair<std::uint64_t, double>> pushes_;
  double confirmed_ = 0;  // of the total
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// When a long computation saves its state: when it is asked to stop, and every half minute, less
// often where saving takes long.
#pragma once

#include <algorithm>
#include <functional>

#include "core/base/clock.h"

namespace starling {

enum class SaveNow { kNothing, kSave, kSaveAndStop };

class SavePolicy {
 public:
  // `stop_asked` is called often.
  SavePolicy(TimePoint now, std::function<bool()> stop_asked)
      : stop_asked_(std::move(stop_asked)), due_(now + kEvery) {}

  SaveNow at(TimePoint now) const {
    if (stop_asked_()) return SaveNow::kSaveAndStop;
    return now < due_ ? SaveNow::kNothing : SaveNow::kSave;
  }
  // A save has ended, and took so long.
  void saved(TimePoint now, Duration took) {
    due_ = now + std::max<Duration>(kEvery, kRarely * took);
  }

 private:
  static constexpr std::chrono::seconds kEvery{30};
  static constexpr int kRarely = 20;  // as long as saving takes

  std::function<bool()> stop_asked_;
  TimePoint due_;
};

}  // namespace starling

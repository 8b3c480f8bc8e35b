// SPDX-License-Identifier: Apache-2.0
// Deadlines by key. The earliest one is known at once; setting and clearing one costs time
// logarithmic in their number.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace starling {

// A value; `Key` is ordered and cheap to copy.
template <class Key>
class Deadlines {
 public:
  std::size_t size() const { return time_of_.size(); }

  // Replaces the key's earlier deadline.
  void set(const Key& key, TimePoint time) {
    clear(key);
    time_of_.emplace(key, time);
    in_order_.emplace(time, key);
  }
  // Does nothing where the key has none.
  void clear(const Key& key) {
    const auto found = time_of_.find(key);
    if (found == time_of_.end()) return;
    in_order_.erase({found->second, key});
    time_of_.erase(found);
  }
  std::optional<TimePoint> next() const {
    return in_order_.empty() ? std::nullopt : std::optional(in_order_.begin()->first);
  }
  // Removes and returns the keys whose time is `now` or before: in order of time, then of key.
  std::vector<Key> take_due(TimePoint now) {
    std::vector<Key> due;
    while (!in_order_.empty() && in_order_.begin()->first <= now) {
      due.push_back(in_order_.begin()->second);
      clear(due.back());
    }
    return due;
  }

 private:
  std::map<Key, TimePoint> time_of_;
  std::set<std::pair<TimePoint, Key>> in_order_;
};

}  // namespace starling

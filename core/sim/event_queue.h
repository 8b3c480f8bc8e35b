// SPDX-License-Identifier: Apache-2.0
// Virtual time: what happens next is the earliest event, and of equals the one scheduled first. The
// whole order follows from the calls made, never from threads or the wall clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/base/clock.h"

namespace starling::sim {

template <class Event>
class EventQueue {
 public:
  TimePoint now() const { return now_; }
  bool empty() const { return events_.empty(); }

  void schedule(TimePoint time, Event event) {
    events_.emplace(std::pair(std::max(time, now_), sequence_++), std::move(event));
  }
  // Removes the next event and moves the clock to it.
  std::optional<Event> pop() {
    if (events_.empty()) return std::nullopt;
    auto node = events_.extract(events_.begin());
    now_ = node.key().first;
    return std::move(node.mapped());
  }

  // What is to come, in order, for an archive: now() and visit(time, event) of each on the one
  // side, resume_at() and schedule() of each on the other.
  template <class F>
  void for_each(F&& visit) const {
    for (const auto& [key, event] : events_) visit(key.first, event);
  }
  std::size_t size() const { return events_.size(); }
  void resume_at(TimePoint now) {
    events_.clear();
    now_ = now;
  }

 private:
  TimePoint now_{};
  std::uint64_t sequence_ = 0;
  std::map<std::pair<TimePoint, std::uint64_t>, Event> events_;
};

}  // namespace starling::sim

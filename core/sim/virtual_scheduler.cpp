// SPDX-License-Identifier: Apache-2.0
#include "core/sim/virtual_scheduler.h"

#include <optional>

namespace starling::sim {
namespace {

// Shells move their deadlines back at nearly every event, so an event that comes too early is kept
// and looks again, rather than that each setting costs an event.
class VirtualTimer final : public Timer {
 public:
  VirtualTimer(VirtualScheduler& scheduler, std::function<void()> on_time)
      : state_(std::make_shared<State>(scheduler, std::move(on_time))) {}
  ~VirtualTimer() override { state_->due.reset(); }
  VirtualTimer(const VirtualTimer&) = delete;
  VirtualTimer& operator=(const VirtualTimer&) = delete;

  void set(TimePoint when) override {
    state_->due = std::max(when, state_->scheduler.now());
    if (!state_->event || *state_->event > *state_->due) expect(state_);
  }
  void clear() override { state_->due.reset(); }

 private:
  struct State {
    State(VirtualScheduler& s, std::function<void()> f) : scheduler(s), on_time(std::move(f)) {}
    VirtualScheduler& scheduler;
    std::function<void()> on_time;
    std::optional<TimePoint> due;
    std::optional<TimePoint> event;  // when this looks next
  };

  static void expect(const std::shared_ptr<State>& state) {
    state->event = state->due;
    state->scheduler.schedule(*state->due, [weak = std::weak_ptr(state), at = *state->due] {
      const auto locked = weak.lock();
      if (locked && locked->event == at) look(locked);
    });
  }
  static void look(const std::shared_ptr<State>& state) {
    state->event.reset();
    if (!state->due) return;
    if (*state->due > state->scheduler.now()) return expect(state);
    state->due.reset();
    state->on_time();
  }

  std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<Timer> VirtualScheduler::make_timer(std::function<void()> on_time) {
  return std::make_unique<VirtualTimer>(*this, std::move(on_time));
}

bool VirtualScheduler::run_one() {
  const auto event = queue_.pop();
  if (event) (*event)();
  return event.has_value();
}

}  // namespace starling::sim

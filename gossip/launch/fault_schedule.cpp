// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/fault_schedule.h"

#include <algorithm>

namespace starling::gossip {
namespace {

constexpr std::initializer_list<FaultKind> kDown = {FaultKind::kKill, FaultKind::kRestart};

LinkCondition worse(const LinkCondition& a, const LinkCondition& b) {
  LinkCondition both{.delay = std::max(a.delay, b.delay),
                     .jitter = std::max(a.jitter, b.jitter),
                     .bytes_per_second = std::max(a.bytes_per_second, b.bytes_per_second),
                     .held = a.held || b.held};
  if (a.bytes_per_second > 0 && b.bytes_per_second > 0) {
    both.bytes_per_second = std::min(a.bytes_per_second, b.bytes_per_second);
  }
  return both;
}

}  // namespace

FaultSchedule::FaultSchedule(FaultScript script, Links base)
    : base_(std::move(base)), waiting_(std::move(script)) {}

bool FaultSchedule::meets(Node node, std::initializer_list<FaultKind> kinds) const {
  return std::ranges::any_of(running_, [&](const Running& running) {
    return std::ranges::find(kinds, running.event.kind) != kinds.end() &&
           std::ranges::find(running.event.nodes, node) != running.event.nodes.end();
  });
}

bool FaultSchedule::down(Node node) const { return meets(node, kDown); }

bool FaultSchedule::gone(Node node) const {
  return std::ranges::any_of(running_, [node](const Running& running) {
    const FaultKind kind = running.event.kind;
    return !running.ends && (kind == FaultKind::kKill || kind == FaultKind::kPause) &&
           std::ranges::find(running.event.nodes, node) != running.event.nodes.end();
  });
}

void FaultSchedule::set_links(const FaultEvent& event, std::vector<FaultAction>& actions) const {
  for (const auto& link : event.links) {
    const auto base = base_.find(link);
    LinkCondition condition = base == base_.end() ? LinkCondition() : base->second;
    for (const Running& running : running_) {
      if (!std::ranges::binary_search(running.event.links, link)) continue;
      condition = worse(condition, running.event.condition);
    }
    actions.emplace_back(SetLink{link.first, link.second, condition});
  }
}

void FaultSchedule::begin(FaultEvent event, Duration at, std::vector<FaultAction>& actions) {
  actions.emplace_back(TellFault{to_text(event)});
  if (event.kind == FaultKind::kReset) {
    for (const auto& [a, b] : event.links) actions.emplace_back(ResetLink{a, b});
    return;
  }
  for (const Node node : event.nodes) {
    const bool was_down = down(node);
    if (event.kind == FaultKind::kPause && !was_down && !meets(node, {FaultKind::kPause})) {
      actions.emplace_back(PauseNode{node});
    }
    if (std::ranges::find(kDown, event.kind) != kDown.end() && !was_down) {
      actions.emplace_back(KillNode{node});
    }
  }
  // A restart without a duration comes back at once; everything else then lasts for ever.
  std::optional<Duration> ends;
  if (event.lasts > Duration::zero() || event.kind == FaultKind::kRestart) ends = at + event.lasts;
  running_.push_back({std::move(event), ends});
  set_links(running_.back().event, actions);
}

// Of an event that is no longer among those running.
void FaultSchedule::end(const FaultEvent& event, std::vector<FaultAction>& actions) {
  actions.emplace_back(TellFault{event.name + " is over"});
  for (const Node node : event.nodes) {
    if (down(node)) continue;
    if (event.kind == FaultKind::kRestart) {
      actions.emplace_back(StartNode{node});
      if (meets(node, {FaultKind::kPause})) actions.emplace_back(PauseNode{node});
    }
    if (event.kind == FaultKind::kPause && !meets(node, {FaultKind::kPause})) {
      actions.emplace_back(ResumeNode{node});
    }
  }
  set_links(event, actions);
}

std::vector<FaultAction> FaultSchedule::on(Duration elapsed, std::uint64_t step) {
  std::vector<FaultAction> actions;
  // In the order of time, so that what is late does the same.
  for (;;) {
    const auto until = next();
    const auto by_step = std::ranges::find_if(
        waiting_, [&](const FaultEvent& event) { return !event.at && event.step <= step; });
    const bool timed = until && *until <= elapsed;
    if (!timed && by_step == waiting_.end()) return actions;
    if (!timed) {
      FaultEvent event = std::move(*by_step);
      waiting_.erase(by_step);
      begin(std::move(event), elapsed, actions);
      continue;
    }
    const auto over = std::ranges::find(running_, until, &Running::ends);
    if (over != running_.end()) {
      const FaultEvent event = std::move(over->event);
      running_.erase(over);
      end(event, actions);
      continue;
    }
    FaultEvent event = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    begin(std::move(event), *until, actions);
  }
}

std::optional<Duration> FaultSchedule::next() const {
  std::optional<Duration> earliest;
  if (!waiting_.empty()) earliest = waiting_.front().at;
  for (const Running& running : running_) {
    if (running.ends && (!earliest || *running.ends < *earliest)) earliest = running.ends;
  }
  return earliest;
}

}  // namespace starling::gossip

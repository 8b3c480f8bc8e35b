// SPDX-License-Identifier: Apache-2.0
// A group of SwimMachines on a simulated network: latency, loss, links cut one way or both, members
// that crash, restart, or pause. Everything follows from the seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/rng.h"
#include "core/sim/event_queue.h"
#include "gossip/membership/swim_machine.h"

namespace starling::gossip::membership {

struct GroupOptions {
  Member members = 8;
  std::uint64_t seed = 1;
  double loss = 0;
  Duration latency_min = std::chrono::milliseconds(1);
  Duration latency_max = std::chrono::milliseconds(5);
  SwimOptions swim;
  bool ring = false;  // all watch those of a ring, and of the overlay's cycle; else all watch all
};

class Group {
 public:
  struct Change {  // of what `at` thinks of `member`
    TimePoint time;
    Member at;
    Member member;
    State state;
    friend bool operator==(const Change&, const Change&) = default;
  };

  explicit Group(const GroupOptions& options)
      : options_(options),
        network_rng_({.seed = options.seed, .purpose = Purpose::kNetwork}),
        nodes_(options.members),
        cut_(std::size_t{options.members} * options.members, false),
        spoke_(cut_.size(), false),
        views_(cut_.size(), State::kAlive) {
    for (Member m = 0; m < options.members; ++m) names_.push_back("node-" + std::to_string(m));
    for (Member m = 0; m < options.members; ++m) start(m);
  }

  TimePoint now() const { return events_.now(); }
  Member members() const { return options_.members; }
  const SwimMachine& machine(Member m) const { return *nodes_[m].machine; }
  bool lives(Member m) const { return nodes_[m].lives; }
  const std::vector<Change>& changes() const { return changes_; }
  std::uint64_t messages() const { return messages_; }
  // With how many others it exchanged messages so far.
  std::size_t partners(Member m) const {
    std::size_t count = 0;
    for (Member other = 0; other < members(); ++other) {
      count +=
          spoke_[std::size_t{m} * members() + other] || spoke_[std::size_t{other} * members() + m];
    }
    return count;
  }
  std::uint64_t trace() const { return trace_; }  // digest of all actions and their times

  // Every living member thinks all the living alive and all others dead.
  bool agrees() const { return wrong_ == 0; }
  // The same, but that some of the living may be suspect.
  bool verdicts_hold() const {
    for (Member at = 0; at < members(); ++at) {
      for (Member m = 0; lives(at) && m < members(); ++m) {
        if (lives(m) != (machine(at).state(m) != State::kDead)) return false;
      }
    }
    return true;
  }

  void cut(Member from, Member to, bool cut = true) {
    cut_[std::size_t{from} * options_.members + to] = cut;
  }
  void heal() { cut_.assign(cut_.size(), false); }
  void set_loss(double loss) { options_.loss = loss; }
  void slow_down(Member m, Duration by) { nodes_[m].slow_by = by; }

  void crash(Member m) {
    nodes_[m].lives = false;
    nodes_[m].wake_at.reset();
    nodes_[m].inbox.clear();
    count_wrong();
  }
  void restart(Member m) {
    start(m);
    count_wrong();
  }
  void pause(Member m) { nodes_[m].paused = true; }
  void resume(Member m) {
    nodes_[m].paused = false;
    feed(m, Tick{});
    while (!nodes_[m].inbox.empty()) {
      Received received = std::move(nodes_[m].inbox.front());
      nodes_[m].inbox.pop_front();
      feed(m, std::move(received));
    }
  }
  void feed(Member m, const Event& event) {
    perform(m, nodes_[m].machine->on(event, now()));
    wake(m);
  }

  // Until `end`, or until `done()` after some event: whether it was.
  template <class Done>
  bool run_until(TimePoint end, const Done& done) {
    events_.schedule(end, Happening{});
    while (auto happening = events_.pop()) {
      if (happening->kind == Happening::Kind::kStop) {
        if (now() >= end) return done();
        continue;
      }
      happen(*happening);
      if (done()) return true;
    }
    return false;
  }
  void run_for(Duration duration) {
    run_until(now() + duration, [] { return false; });
  }

 private:
  struct Happening {
    enum class Kind { kStop, kWake, kArrival } kind = Kind::kStop;
    Member to = 0;
    Received received{};
  };
  struct Node {
    std::optional<SwimMachine> machine;
    std::optional<TimePoint> wake_at;
    bool lives = false;
    bool paused = false;
    Duration slow_by{};
    std::uint32_t starts = 0;
    std::deque<Received> inbox;  // while paused
  };

  void start(Member m) {
    Node& node = nodes_[m];
    const StreamKey key{options_.seed, Purpose::kTest, m, 0, node.starts++};
    std::optional<Overlay> overlay;
    if (options_.ring) {
      const Member n = options_.members;
      overlay.emplace(m, names_, "run", std::vector<Member>{(m + 1) % n, (m + n - 1) % n});
    }
    node.machine.emplace(options_.swim, 1, m, options_.members, Rng(key), now(), overlay);
    node.lives = true;
    node.paused = false;
    node.wake_at.reset();
    wake(m);
  }

  void wake(Member m) {
    Node& node = nodes_[m];
    auto due = node.machine->next_deadline();
    if (!due) return;
    due = std::max(*due, now());
    if (node.wake_at && *node.wake_at <= *due) return;
    node.wake_at = due;
    events_.schedule(*due, {Happening::Kind::kWake, m, {}});
  }

  void happen(Happening& happening) {
    Node& node = nodes_[happening.to];
    if (!node.lives) return;
    if (happening.kind == Happening::Kind::kArrival) {
      if (node.paused) {
        node.inbox.push_back(std::move(happening.received));
      } else {
        feed(happening.to, std::move(happening.received));
      }
    } else if (node.wake_at == now()) {
      node.wake_at.reset();
      if (node.paused) return;
      const auto due = node.machine->next_deadline();
      if (due && *due <= now()) {
        feed(happening.to, Tick{});
      } else {
        wake(happening.to);
      }
    }
  }

  void perform(Member from, std::vector<Action> actions) {
    for (Action& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) {
        deliver(from, std::move(*send));
      } else {
        const auto& changed = std::get<Changed>(action);
        mix({1, from, changed.member, static_cast<std::uint64_t>(changed.state)});
        const State before = std::exchange(view(from, changed.member), changed.state);
        wrong_ += is_wrong(changed.member, changed.state);
        wrong_ -= is_wrong(changed.member, before);
        changes_.push_back({now(), from, changed.member, changed.state});
      }
    }
  }

  void deliver(Member from, Send send) {
    ++messages_;
    spoke_[std::size_t{from} * options_.members + send.to] = true;
    mix({2, from, send.to, static_cast<std::uint64_t>(send.swim.kind), send.swim.sequence});
    for (const auto& news : send.swim.news) {
      mix({news.member, static_cast<std::uint64_t>(news.state), news.incarnation, news.by});
    }
    if (cut_[std::size_t{from} * options_.members + send.to] || !nodes_[send.to].lives) return;
    if (options_.loss > 0 && network_rng_.uniform() < options_.loss) return;
    const auto spread =
        static_cast<std::uint64_t>((options_.latency_max - options_.latency_min).count());
    const Duration latency = options_.latency_min + nodes_[from].slow_by +
                             Duration(static_cast<std::int64_t>(network_rng_.below(spread + 1)));
    events_.schedule(now() + latency,
                     {Happening::Kind::kArrival, send.to, {from, std::move(send.swim)}});
  }

  void mix(std::initializer_list<std::uint64_t> words) {
    trace_ =
        (trace_ ^ static_cast<std::uint64_t>(now().time_since_epoch().count())) * 0x100000001B3;
    for (const std::uint64_t word : words) trace_ = (trace_ ^ word) * 0x100000001B3;
  }

  State& view(Member at, Member member) {
    return views_[std::size_t{at} * options_.members + member];
  }
  bool is_wrong(Member member, State state) const {
    return state != (nodes_[member].lives ? State::kAlive : State::kDead);
  }
  void count_wrong() {
    wrong_ = 0;
    for (Member at = 0; at < options_.members; ++at) {
      for (Member m = 0; m < options_.members; ++m) {
        view(at, m) = nodes_[at].machine->state(m);
        if (nodes_[at].lives) wrong_ += is_wrong(m, view(at, m));
      }
    }
  }

  GroupOptions options_;
  Rng network_rng_;
  sim::EventQueue<Happening> events_;
  std::vector<std::string> names_;
  std::vector<Node> nodes_;
  std::vector<bool> cut_;
  std::vector<bool> spoke_;
  std::vector<State> views_;  // as the changes tell them, of each by each
  std::vector<Change> changes_;
  std::uint64_t messages_ = 0;
  std::uint64_t trace_ = 0xCBF29CE484222325;
  std::size_t wrong_ = 0;
};

}  // namespace starling::gossip::membership

// SPDX-License-Identifier: Apache-2.0
// A simulated network whose members are machines without I/O, in virtual time. Members crash,
// restart and pause; messages arrive in order for each pair, or are lost, held up, or cut off.
// Everything follows from the seed. A derived class performs the actions of the machines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/sim/event_queue.h"

namespace starling::testing {

// Machine: on(event, now) returns actions, and next_deadline() says when it wants a Tick.
template <class Machine, class Event, class Tick>
class MachineNetwork {
 public:
  using Member = std::uint32_t;
  using Work = std::function<void()>;

  MachineNetwork(const MachineNetwork&) = delete;
  MachineNetwork& operator=(const MachineNetwork&) = delete;

  Member members() const { return static_cast<Member>(nodes_.size()); }
  const Machine& machine(Member m) const { return *nodes_[m].machine; }
  bool alive(Member m) const { return nodes_[m].alive; }

  TimePoint now() const { return queue_.now(); }
  double elapsed() const { return to_seconds(now().time_since_epoch()); }
  // Calls `work` after this time, whatever state the members are in.
  void after(double seconds, Work work) { queue_.schedule(in(seconds), std::move(work)); }
  // Runs events until `done()` is true after one of them, or until `end`; returns whether it was.
  template <class Done>
  bool run_until(TimePoint end, const Done& done) {
    queue_.schedule(end, [] {});
    while (std::optional<Work> work = queue_.pop()) {
      (*work)();
      if (done()) return true;
      if (now() >= end) break;
    }
    return false;
  }

  // Gives the machine an event and performs its actions. Dropped if the member is dead.
  void feed(Member m, Event event) {
    on_turn(m, [this, m, event = std::move(event)]() mutable { handle(m, std::move(event)); });
  }
  // Events that come during the pause are handled at its end, in order.
  void pause(Member m, double seconds) {
    nodes_[m].paused_until = std::max(nodes_[m].paused_until, in(seconds));
    after(seconds, [this, m] {
      if (now() < nodes_[m].paused_until) return;
      for (Work& work : std::exchange(nodes_[m].backlog, {})) on_turn(m, std::move(work));
    });
  }
  // Links are one way. What is sent over a cut link is lost.
  void cut(Member from, Member to) { link(from, to).is_cut = true; }
  void mend(Member from, Member to) { link(from, to).is_cut = false; }
  void mend_all() {
    for (Link& each : links_) each.is_cut = false;
  }
  bool is_cut(Member from, Member to) const { return link(from, to).is_cut; }
  // What is sent within this time arrives after it; no member is told.
  void hold(Member from, Member to, double seconds) {
    link(from, to).held_until = std::max(link(from, to).held_until, in(seconds));
  }
  // No more arrive in a second, also of what was held.
  void limit(Member from, Member to, double messages_per_second) {
    link(from, to).apart = from_seconds(1 / messages_per_second);
  }
  bool is_held(Member from, Member to) const { return now() < link(from, to).held_until; }
  // The connection is replaced: what is on its way is lost.
  void reset(Member from, Member to) { ++link(from, to).connection; }
  // The fraction of messages for which is_lost() is true.
  void set_loss(double loss) { loss_ = loss; }

 protected:
  using Action = typename decltype(std::declval<Machine&>().on(std::declval<Event>(),
                                                               TimePoint{}))::value_type;

  MachineNetwork(std::size_t members, const StreamKey& key)
      : rng_(key), nodes_(members), links_(members * members) {}
  ~MachineNetwork() = default;

  virtual void perform(Member self, Action& action) = 0;
  // Drawn for each message.
  virtual Duration latency(Member from) = 0;

  Rng& rng() { return rng_; }
  TimePoint in(double seconds) const { return now() + from_seconds(seconds); }

  // Starts a new process. What was on its way to the former one is lost.
  template <class... Arguments>
  void start(Member m, Arguments&&... arguments) {
    nodes_[m].alive = true;
    nodes_[m].paused_until = {};
    nodes_[m].backlog.clear();
    for (Member from = 0; from < members(); ++from) reset(from, m);
    replace(m, std::forward<Arguments>(arguments)...);
  }
  // Another machine in the same process: the former one's alarm and later() work are dropped.
  template <class... Arguments>
  void replace(Member m, Arguments&&... arguments) {
    Node& node = nodes_[m];
    ++node.generation;
    node.alarm.reset();
    node.machine.emplace(std::forward<Arguments>(arguments)...);
    set_alarm(m);
  }
  void kill(Member m) { nodes_[m].alive = false; }

  // Calls `work` now, or at the end of a pause, or not at all if the member is dead.
  template <class F>
  void on_turn(Member m, F work) {
    Node& node = nodes_[m];
    if (!node.alive) return;
    if (now() < node.paused_until || !node.backlog.empty()) {
      node.backlog.push_back(std::move(work));
    } else {
      work();
    }
  }
  // Calls `work` on a turn of the member, unless its machine has been replaced by then.
  void later(Member m, TimePoint time, Work work) {
    queue_.schedule(time,
                    [this, m, generation = nodes_[m].generation, work = std::move(work)]() mutable {
                      on_turn(m, [this, m, generation, work = std::move(work)] {
                        if (nodes_[m].generation == generation) work();
                      });
                    });
  }
  void later(Member m, double seconds, Event event) {
    later(m, in(seconds),
          [this, m, event = std::move(event)]() mutable { feed(m, std::move(event)); });
  }
  // `arrive` is called on a turn of the receiver.
  void send(Member from, Member to, Work arrive) {
    Link& on = link(from, to);
    if (on.is_cut) return;
    on.last = std::max(on.last + on.apart, std::max(now(), on.held_until) + latency(from));
    queue_.schedule(
        on.last, [this, &on, to, connection = on.connection, work = std::move(arrive)]() mutable {
          on_turn(to, [&on, connection, work = std::move(work)] {
            if (on.connection == connection) work();
          });
        });
  }
  void send(Member from, Member to, Event event) {
    send(from, to, [this, to, event = std::move(event)]() mutable { feed(to, std::move(event)); });
  }
  // Drawn for each message that may be lost.
  bool is_lost() { return loss_ > 0 && rng_.uniform() < loss_; }

 private:
  struct Node {
    std::optional<Machine> machine;
    bool alive = false;
    unsigned generation = 0;  // of the machine
    TimePoint paused_until{};
    std::vector<Work> backlog;
    std::optional<TimePoint> alarm;
  };
  struct Link {  // one way
    bool is_cut = false;
    unsigned connection = 0;
    TimePoint held_until{};
    TimePoint last{};  // arrival
    Duration apart{};  // from the arrival before, at least
  };

  Link& link(Member from, Member to) { return links_[std::size_t{from} * nodes_.size() + to]; }
  const Link& link(Member from, Member to) const {
    return links_[std::size_t{from} * nodes_.size() + to];
  }

  void handle(Member m, Event event) {
    const unsigned generation = nodes_[m].generation;
    for (Action& action : nodes_[m].machine->on(std::move(event), now())) {
      perform(m, action);
      if (!nodes_[m].alive || nodes_[m].generation != generation) return;
    }
    set_alarm(m);
  }
  void set_alarm(Member m) {
    const std::optional<TimePoint> due = nodes_[m].machine->next_deadline();
    std::optional<TimePoint>& alarm = nodes_[m].alarm;
    if (!due || (alarm && *alarm <= *due)) return;
    const TimePoint time = std::max(*due, now());
    alarm = time;
    later(m, time, [this, m, time] { on_alarm(m, time); });
  }
  void on_alarm(Member m, TimePoint time) {
    if (nodes_[m].alarm != time) return;  // an earlier one was set since
    nodes_[m].alarm.reset();
    const std::optional<TimePoint> due = nodes_[m].machine->next_deadline();
    if (due && *due <= now()) {
      handle(m, Tick{});
    } else {
      set_alarm(m);
    }
  }

  Rng rng_;
  double loss_ = 0;
  sim::EventQueue<Work> queue_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
};

}  // namespace starling::testing

// SPDX-License-Identifier: Apache-2.0
// A group of SwimMachines on a simulated network: latency, loss, links cut one way or both, members
// that crash, restart, or pause. Everything follows from the seed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gossip/membership/swim_machine.h"
#include "tests/support/machine_network.h"

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

class Group final : public starling::testing::MachineNetwork<SwimMachine, Event, Tick> {
 public:
  struct Change {  // of what `at` thinks of `member`
    TimePoint time;
    Member at;
    Member member;
    State state;
    friend bool operator==(const Change&, const Change&) = default;
  };

  explicit Group(const GroupOptions& options)
      : MachineNetwork(options.members, {.seed = options.seed, .purpose = Purpose::kNetwork}),
        options_(options),
        starts_(options.members),
        slow_by_(options.members),
        spoke_(std::size_t{options.members} * options.members, false),
        views_(spoke_.size(), State::kAlive) {
    set_loss(options.loss);
    for (Member m = 0; m < options.members; ++m) names_.push_back("node-" + std::to_string(m));
    for (Member m = 0; m < options.members; ++m) begin(m);
  }

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
      for (Member m = 0; alive(at) && m < members(); ++m) {
        if (alive(m) != (machine(at).state(m) != State::kDead)) return false;
      }
    }
    return true;
  }

  void slow_down(Member m, Duration by) { slow_by_[m] = by; }
  void crash(Member m) {
    kill(m);
    count_wrong();
  }
  void restart(Member m) {
    begin(m);
    count_wrong();
  }
  void run_for(Duration duration) {
    run_until(now() + duration, [] { return false; });
  }

 private:
  void begin(Member m) {
    const StreamKey key{options_.seed, Purpose::kTest, m, 0, starts_[m]++};
    std::optional<Overlay> overlay;
    if (options_.ring) {
      const Member n = members();
      overlay.emplace(m, names_, "run", std::vector<Member>{(m + 1) % n, (m + n - 1) % n});
    }
    start(m, options_.swim, 1, m, members(), Rng(key), now(), overlay);
  }

  void perform(Member self, Action& action) override {
    if (auto* message = std::get_if<Send>(&action)) {
      transmit(self, *message);
      return;
    }
    const auto& changed = std::get<Changed>(action);
    mix({1, self, changed.member, static_cast<std::uint64_t>(changed.state)});
    const State before = std::exchange(view(self, changed.member), changed.state);
    wrong_ += is_wrong(changed.member, changed.state);
    wrong_ -= is_wrong(changed.member, before);
    changes_.push_back({now(), self, changed.member, changed.state});
  }

  void transmit(Member from, Send& message) {
    ++messages_;
    spoke_[std::size_t{from} * members() + message.to] = true;
    mix({2, from, message.to, static_cast<std::uint64_t>(message.swim.kind),
         message.swim.sequence});
    for (const auto& news : message.swim.news) {
      mix({news.member, static_cast<std::uint64_t>(news.state), news.incarnation, news.by});
    }
    if (!is_lost()) send(from, message.to, Received{from, std::move(message.swim)});
  }

  Duration latency(Member from) override {
    const auto spread =
        static_cast<std::uint64_t>((options_.latency_max - options_.latency_min).count());
    return options_.latency_min + slow_by_[from] +
           Duration(static_cast<std::int64_t>(rng().below(spread + 1)));
  }

  void mix(std::initializer_list<std::uint64_t> words) {
    trace_ =
        (trace_ ^ static_cast<std::uint64_t>(now().time_since_epoch().count())) * 0x100000001B3;
    for (const std::uint64_t word : words) trace_ = (trace_ ^ word) * 0x100000001B3;
  }

  State& view(Member at, Member member) { return views_[std::size_t{at} * members() + member]; }
  bool is_wrong(Member member, State state) const {
    return state != (alive(member) ? State::kAlive : State::kDead);
  }
  void count_wrong() {
    wrong_ = 0;
    for (Member at = 0; at < members(); ++at) {
      for (Member m = 0; m < members(); ++m) {
        view(at, m) = machine(at).state(m);
        if (alive(at)) wrong_ += is_wrong(m, view(at, m));
      }
    }
  }

  GroupOptions options_;
  std::vector<std::string> names_;
  std::vector<std::uint32_t> starts_;
  std::vector<Duration> slow_by_;
  std::vector<bool> spoke_;
  std::vector<State> views_;  // as the changes tell them, of each by each
  std::vector<Change> changes_;
  std::uint64_t messages_ = 0;
  std::uint64_t trace_ = 0xCBF29CE484222325;
  std::size_t wrong_ = 0;
};

}  // namespace starling::gossip::membership

// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/fallback_machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace starling::gossip {

using namespace fallback;

namespace {

constexpr std::size_t kRoundsMeasured = 9;  // the median of so many is what a round usually takes

}  // namespace

std::vector<Action> FallbackMachine::on(Event event, TimePoint now) {
  now_ = now;
  std::visit([this](auto& e) { handle(e); }, event);
  return std::exchange(actions_, {});
}

std::optional<TimePoint> FallbackMachine::next_deadline() const {
  const bool ready = state_ == State::kAway && terms_ && pace();
  if (!ready) return std::nullopt;
  return lost_at_ + terms_->after;
}

void FallbackMachine::handle(Heard&) {
  if (state_ == State::kGossiping) return rest(State::kConnected);
  state_ = State::kConnected;
  if (gained_ && !gained_->returned_at) gained_->returned_at = now_;
}

void FallbackMachine::handle(Lost&) {
  if (state_ != State::kConnected) return;
  state_ = State::kAway;
  lost_at_ = now_;
  spent_ = 0;
  seen_.reset();  // the absence is no part of a round
}

// What is known of another run means nothing to this one.
void FallbackMachine::handle(Told& event) {
  if (terms_ == event.terms) return;
  terms_ = event.terms;
  const auto of_another = [this](const auto& kept) {
    return kept && terms_ && kept->run.value() != terms_->run;
  };
  if (state_ == State::kGossiping && (!terms_ || of_another(held_))) rest(State::kAway);
  if (of_another(held_)) held_.reset();
  if (of_another(gained_)) gained_.reset();
}

void FallbackMachine::handle(Tick&) {
  const auto due = next_deadline();
  if (!due || now_ < *due) return;
  state_ = State::kGossiping;
  say(LogLevel::kWarning, fmt::format("the coordinator has been gone for {}: training on by gossip "
                                      "with those who can be reached",
                                      format_duration(terms_->after)));
  actions_.emplace_back(Begin{held_->model, steps_, *pace()});
}

void FallbackMachine::rest(State next) {
  state_ = next;
  actions_.emplace_back(Rest{});
}

// Comes at once after Rest, from whichever state that was said in.
void FallbackMachine::handle(Rested& event) {
  if (!event.trained || event.trained->exchanges == 0 || !held_) return;
  steps_ += event.trained->steps;
  spent_ += event.trained->steps;
  held_->earlier += event.trained->steps;
  say(LogLevel::kInfo, fmt::format("{} steps were trained by gossip in {} exchanges",
                                   event.trained->steps, event.trained->exchanges));
  held_->model = event.trained->model;
  gained_ = Gained{.run = held_->run, .trained = std::move(*event.trained), .returned_at = {}};
  if (state_ == State::kConnected) gained_->returned_at = now_;  // else the roster came to its end
}

// --- the pace of the rounds ---------------------------------------------------------------------

void FallbackMachine::learn_pace(const Asked& asked) {
  if (paced_run_ != asked.base.run) {
    paced_run_ = asked.base.run;
    took_.clear();
    seen_.reset();
  }
  rounds_ = asked.rounds;
  steps_in_round_ = asked.steps;
  const Round round = asked.base.round;
  if (seen_ && round > seen_->round) learn((now_ - seen_->at) / (round - seen_->round));
  if (!seen_ || round != seen_->round) seen_ = Seen{asked.task, round, now_};
}

void FallbackMachine::learn(Duration round) {
  took_.push_back(round);
  if (took_.size() > kRoundsMeasured) took_.pop_front();
}

std::optional<FallbackPace> FallbackMachine::pace() const {
  if (!held_ || held_->run != paced_run_ || took_.empty() || steps_in_round_ == 0) {
    return std::nullopt;
  }
  std::vector<Duration> sorted(took_.begin(), took_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return FallbackPace{.round = held_->round,
                      .rounds = rounds_,
                      .steps = steps_in_round_,
                      .per_round = *middle,
                      .from = lost_at_,
                      .earlier = held_->earlier,
                      .spent = spent_};
}

// --- the contribution ---------------------------------------------------------------------------

bool FallbackMachine::may_merge(const Asked& asked) {
  if (!gained_ || gained_->run != asked.base.run) return false;
  // A task that bore it and of which nothing was heard may have counted: never twice.
  const bool used = gained_->task && gained_->base != asked.base;
  const bool late = !terms_ || now_ > gained_->returned_at.value_or(now_) + terms_->merge_within;
  const bool fits = gained_->trained.model.size() == asked.model.size();
  if (!used && !late && fits) return true;
  if (!used) {
    say(LogLevel::kWarning,
        fmt::format("what was trained by gossip is dropped: {}",
                    fits ? "no round asked for it in time" : "the round's model has another size"));
  }
  gained_.reset();
  return false;
}

void FallbackMachine::handle(Asked& event) {
  learn_pace(event);
  if (may_merge(event)) {
    gained_->task = event.task;
    gained_->base = event.base;
    say(LogLevel::kInfo,
        fmt::format("merging what was trained by gossip into round {}", event.base.round + 1));
    actions_.emplace_back(Merge{event.task, gained_->trained});
  }
  // Who is lost again before the merge counted goes on from what it had gained.
  if (!gained_) held_ = Held{event.base.run, std::move(event.model), event.base.round};
}

void FallbackMachine::handle(Settled& event) {
  // Until a second round asks, its commit tells how long the first one took.
  if (event.counted && took_.empty() && seen_ && seen_->task == event.task) {
    learn(now_ - seen_->at);
  }
  if (!gained_ || gained_->task != event.task) return;
  if (event.counted) {
    gained_.reset();
  } else {
    gained_->task.reset();
  }
}

void FallbackMachine::say(LogLevel level, std::string line) {
  actions_.emplace_back(Say{level, std::move(line)});
}

}  // namespace starling::gossip

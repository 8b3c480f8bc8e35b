// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/fallback_machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace starling::gossip {

using namespace fallback;

namespace {

constexpr std::size_t kRoundsMeasured = 9;  // the median of so many is what a round usually takes
constexpr Duration kKeepEvery = std::chrono::seconds(30);

}  // namespace

std::vector<Action> FallbackMachine::on(Event event, TimePoint now) {
  now_ = now;
  std::visit([this](auto& e) { handle(e); }, event);
  return std::exchange(actions_, {});
}

std::optional<TimePoint> FallbackMachine::next_deadline() const {
  if (state_ == State::kGossiping) return keep_at_;
  const bool ready = state_ == State::kAway && terms_ && pace();
  if (!ready) return std::nullopt;
  return missed_since_ + terms_->after;
}

void FallbackMachine::handle(CoordinatorConnected&) {
  if (state_ == State::kGossiping) return pause(State::kConnected);
  state_ = State::kConnected;
  if (interrupted_) {
    Paused paused{std::exchange(interrupted_, std::nullopt)};
    return handle(paused);
  }
  if (!gained_ || gained_->returned_at) return;
  gained_->returned_at = now_;
  keep(gained_->trained, true);
}

void FallbackMachine::handle(CoordinatorLost&) {
  if (state_ != State::kConnected) return;
  state_ = State::kAway;
  missed_since_ = lost_at_ = now_;
  spent_ = 0;
  seen_.reset();  // the absence is no part of a round
}

// What is known of another run means nothing to this one.
void FallbackMachine::handle(TermsChanged& event) {
  if (terms_ == event.terms) return;
  terms_ = event.terms;
  const auto of_another = [this](const auto& kept) {
    return kept && terms_ && kept->run.value() != terms_->run;
  };
  if (state_ == State::kGossiping && (!terms_ || of_another(held_))) pause(State::kAway);
  if (of_another(held_)) {
    held_.reset();
    interrupted_.reset();
    forget();
  }
  if (of_another(gained_)) gained_.reset();
}

void FallbackMachine::handle(Tick&) {
  const auto due = next_deadline();
  if (!due || now_ < *due) return;
  if (state_ == State::kAway) return begin();
  keep_at_ = now_ + kKeepEvery;
  actions_.emplace_back(ReadProgress{});
}

void FallbackMachine::begin() {
  state_ = State::kGossiping;
  keep_at_ = now_ + kKeepEvery;
  say(LogLevel::kWarning, fmt::format("the coordinator has been gone for {}: training on by gossip "
                                      "with those who can be reached",
                                      format_duration(terms_->after)));
  const Trained from = std::exchange(interrupted_, std::nullopt).value_or(Trained{held_->model});
  if (!gained_) keep(from, false);
  actions_.emplace_back(Begin{from, steps_, *pace()});
}

void FallbackMachine::pause(State next) {
  state_ = next;
  actions_.emplace_back(Pause{});
}

// Comes at once after Pause, from whichever state that was said in.
void FallbackMachine::handle(Paused& event) {
  if (!held_) return;
  if (!event.trained || event.trained->exchanges == 0) {
    if (!gained_) forget();
    return;
  }
  steps_ += event.trained->steps;
  spent_ += event.trained->steps;
  held_->earlier += event.trained->steps;
  say(LogLevel::kInfo, fmt::format("{} steps were trained by gossip in {} exchanges",
                                   event.trained->steps, event.trained->exchanges));
  held_->model = event.trained->model;
  gained_ = Gained{.run = held_->run,
                   .run_key = held_->run_key,
                   .trained = std::move(*event.trained),
                   .returned_at = {}};
  if (state_ == State::kConnected) gained_->returned_at = now_;  // else the roster came to its end
  keep(gained_->trained, true);
}

// --- across restarts ----------------------------------------------------------------------------

void FallbackMachine::handle(Progress& event) {
  const bool counts = state_ == State::kGossiping && event.trained && event.trained->exchanges > 0;
  if (counts) keep(*event.trained, false);
}

void FallbackMachine::keep(const Trained& trained, bool ended) {
  const auto pace_now = pace();
  Kept kept{.run = held_->run.value(),
            .run_key = held_->run_key,
            .round = held_->round,
            .rounds = rounds_,
            .steps_in_round = std::max<std::uint64_t>(steps_in_round_, 1),
            .per_round = pace_now ? pace_now->per_round : Duration{},
            .earlier = held_->earlier,
            .spent = spent_,
            .steps = steps_,
            .away = now_ - lost_at_,
            .ended = ended,
            .trained = trained};
  if (ended && gained_->returned_at) kept.returned = now_ - *gained_->returned_at;
  if (ended && gained_->task) {
    kept.task = gained_->task->value();
    kept.base = gained_->base.round;
    kept.base_digest = gained_->base.sha256.hex();
  }
  kept_ = true;
  actions_.emplace_back(Keep{std::move(kept)});
}

void FallbackMachine::forget() {
  if (std::exchange(kept_, false)) actions_.emplace_back(Forget{});
}

// The coordinator is still away, as far as anybody knows. The time in which no process ran counts
// as the wall clock has it; one that was set back gives no time to train in.
void FallbackMachine::handle(Restored& event) {
  Kept& kept = event.kept;
  kept_ = true;
  held_ = Held{RunId(kept.run), kept.run_key, kept.trained.model, kept.round, kept.earlier};
  steps_ = kept.steps;
  paced_run_ = held_->run;
  rounds_ = kept.rounds;
  steps_in_round_ = kept.steps_in_round;
  if (kept.per_round > Duration{}) learn(kept.per_round);
  if (!kept.returned) {  // else the absence that begins is another one
    lost_at_ = now_ - kept.away - event.since;
    spent_ = kept.spent;
  }
  if (!kept.ended) {
    interrupted_ = std::move(kept.trained);
    return;
  }
  gained_ = Gained{.run = held_->run,
                   .run_key = held_->run_key,
                   .trained = std::move(kept.trained),
                   .returned_at = {}};
  if (kept.returned) gained_->returned_at = now_ - *kept.returned - event.since;
  const auto digest = Sha256Digest::parse(kept.base_digest);
  if (kept.task == 0 || !digest) return;
  gained_->task = TaskId(kept.task);
  gained_->base = {held_->run, kept.base, *digest, held_->run_key};
}

// --- the pace of the rounds ---------------------------------------------------------------------

void FallbackMachine::learn_pace(const TaskOffered& asked) {
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

// The run whose fallback this device may be in. Without a roster it may be any run, but what was
// trained for one is kept until another one's roster arrives.
bool FallbackMachine::concerns(RunId run) const {
  if (terms_) return terms_->run == run.value();
  return !gained_ || gained_->run == run;
}

bool FallbackMachine::may_merge(const TaskOffered& asked) {
  if (!gained_ || gained_->run != asked.base.run) return false;
  const bool is_of_this_run =
      update::ModelVersion::is_same_run(gained_->run_key, asked.base.run_key);
  // A task that bore it and of which nothing was heard may have counted: never twice.
  const bool used = is_of_this_run && gained_->task && !gained_->base.matches(asked.base);
  const bool late = !terms_ || now_ > gained_->returned_at.value_or(now_) + terms_->merge_within;
  const bool fits = gained_->trained.model.size() == asked.model.size();
  if (is_of_this_run && !used && !late && fits) return true;
  const char* reason = "no round asked for it in time";
  if (!is_of_this_run) {
    reason = "it is of another run that had the same number";
  } else if (used) {
    reason = "it was offered to an earlier round, which may have counted it";
  } else if (!fits) {
    reason = "the round's model has another size";
  }
  say(LogLevel::kWarning, fmt::format("what was trained by gossip is dropped: {}", reason));
  gained_.reset();
  forget();
  return false;
}

void FallbackMachine::handle(TaskOffered& event) {
  if (!concerns(event.base.run)) return;
  learn_pace(event);
  if (may_merge(event)) {
    gained_->task = event.task;
    gained_->base = event.base;
    say(LogLevel::kInfo,
        fmt::format("merging what was trained by gossip into round {}", event.base.round + 1));
    keep(gained_->trained, true);
    actions_.emplace_back(Merge{event.task, gained_->trained});
  }
  // Who is lost again before the merge counted goes on from what it had gained.
  if (!gained_) {
    held_ = Held{event.base.run, event.base.run_key, std::move(event.model), event.base.round};
  }
}

void FallbackMachine::handle(TaskSettled& event) {
  // Until a second round asks, its commit tells how long the first one took.
  if (event.counted && took_.empty() && seen_ && seen_->task == event.task) {
    learn(now_ - seen_->at);
  }
  if (!gained_ || gained_->task != event.task) return;
  if (event.counted) {
    gained_.reset();
    forget();
  } else {
    gained_->task.reset();
    keep(gained_->trained, true);
  }
}

void FallbackMachine::say(LogLevel level, std::string line) {
  actions_.emplace_back(Say{level, std::move(line)});
}

}  // namespace starling::gossip

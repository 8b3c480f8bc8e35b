// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/all_reduce_machine.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"

namespace starling::collective {
namespace {

// Exchanges are recent that ended within this part of `answer`.
constexpr int kNearParts = 3;
constexpr Exchange kExchangeMax = std::numeric_limits<Exchange>::max() - 2;

}  // namespace

AllReduceMachine::AllReduceMachine(const AllReduceOptions& options, Epoch epoch, Member self,
                                   std::vector<std::string> names, Progress next,
                                   const std::set<Member>& absent, Memory memory)
    : options_(options),
      epoch_(epoch),
      self_(self),
      names_(std::move(names)),
      majority_{.members = names_.size(), .any = options.any_mean},
      memory_(memory),
      next_(next),
      liveness_(names_.size(), self),
      arrivals_(options.stragglers),
      pieces_(options.pieces),
      claims_(names_.size(), self, next.exchange, options.answer) {
  STARLING_CHECK(self < names_.size());
  for (Member m = 0; m < names_.size(); ++m) {
    if (absent.contains(m)) {
      liveness_.call_silent(m, TimePoint{});
    } else {
      expected_.insert(m);
    }
  }
}

std::vector<Action> AllReduceMachine::on(Event event, TimePoint now) {
  begin_event(now);
  std::visit([this](auto& e) { handle(e); }, event);
  return end_event();
}

std::vector<Action> AllReduceMachine::pass_over(Member member, TimePoint from, TimePoint now) {
  begin_event(now);
  liveness_.pass_over(member, from);
  return end_event();
}

void AllReduceMachine::begin_event(TimePoint now) {
  now_ = now;
  if (!due_ || now_ <= *due_ + kStopped) return;
  stopped_until_ = now_;
  if (current_) current_->resume(now_);
  if (gather_) gather_->resume(view());
}

std::vector<Action> AllReduceMachine::end_event() {
  if (gather_ && gather_->is_due(view())) close();
  due_ = next_deadline();
  return std::exchange(actions_, {});
}

std::optional<TimePoint> AllReduceMachine::next_deadline() const {
  std::optional<TimePoint> due;
  if (gather_) due = gather_->deadline(view());
  const auto sooner = [&](std::optional<TimePoint> time) {
    if (time) due = std::min(due.value_or(*time), *time);
  };
  if (!current_) return due;
  sooner(current_->gives_up_at(patience(), liveness_));
  sooner(source_gives_up_at());
  sooner(claims_.looks_at());
  sooner(current_->probes_at(patience()));
  sooner(leaves_gatherer_at());
  return due;
}

void AllReduceMachine::learn_from(const AllReduceMachine& former) {
  arrivals_ = former.arrivals_;
  pieces_ = former.pieces_;
  ended_at_ = former.ended_at_;
  is_running_ = former.is_running_;
  is_left_out_ = former.is_left_out_;
  missing_said_at_ = former.missing_said_at_;
}

// --- events --------------------------------------------------------------------------------------

void AllReduceMachine::handle(Begin& begin) {
  STARLING_CHECK(!last_ || begin.at > last_->commit.at);
  claims_.begin(begin.at, now_);
  if (!resume(begin)) {
    if (!donors_.empty() && begin.at >= next_) claims_.pace().took(begin.at.exchange, now_);
    wants_served_.clear();
    current_.emplace(begin, self_, names_.size(), now_);
    if (ended_at_) current_->work = now_ - *ended_at_;
  }
  next_ = {begin.at.backed, begin.at.exchange + 1};
  if (!history_.has_barred(begin.at)) bar(begin.at);
  if (gather_ && gather_->at() != begin.at) gather_.reset();
  look_ahead();
  if (!current_) return;
  find_unanswering();
  for (Member m = 0; m < names_.size(); ++m) {  // silent members may be back
    if (liveness_.silent_since(m)) send(m, begin.at, 0, reduce::AskProgress{});
  }
  if (!look_for_told()) take_part_in(first_attempt());
}

void AllReduceMachine::handle(LinkUp& event) {
  if (event.member >= names_.size() || event.member == self_) return;
  if (event.is_new) meet(event.member);
  if (event.at && event.at->backed <= event.at->exchange && *event.at > open())
    hear_of_later(event.member, *event.at);
  if (event.is_new) resend(event.member);
}

void AllReduceMachine::meet(Member member) {
  const bool is_first = !liveness_.is_met(member);
  liveness_.heard(member, now_);
  told_ahead_.erase(member);  // it may have been started again since
  if (is_first && waiting_for() == member) current_->waits_since = now_;
  // Without a majority every member that returns is waited for.
  if (2 * expected_.size() <= names_.size()) expected_.insert(member);
}

void AllReduceMachine::handle(LinkDown& event) {
  if (event.member >= names_.size() || event.member == self_) return;
  liveness_.link_down(event.member, now_);
  claims_.forget(event.member);
}

void AllReduceMachine::handle(NoteReceived& event) {
  Note& note = event.note;
  if (event.from >= names_.size() || event.from == self_ || note.epoch != epoch_) return;
  if (note.at.backed > note.at.exchange || note.at.exchange > kExchangeMax) return;  // cannot be
  note_heard(event.from, note.at);
  if (is_answer(event.from, note)) liveness_.answered(event.from);
  hear(event.from, note.at, note.attempt, std::move(note.what));
}

// A link that held notes back delivers them one by one. If an old note ended its sender's silence,
// the others would wait for it and it would be late each time. Without a majority any note counts.
void AllReduceMachine::note_heard(Member from, Progress at) {
  if (!is_silent(from) || !is_past(at) || !is_quorum(expected_.size())) liveness_.heard(from, now_);
}

// Counted in exchanges and in time: where exchanges are quick, the notes of a distant member are
// many exchanges old when they arrive. `backed` counts too, since a member without a majority may
// end as many exchanges alone, or more.
bool AllReduceMachine::is_past(Progress at) const {
  const Progress ours = open();
  if (at >= ours) return false;
  const Exchange behind = std::max(ours.backed - std::min(at.backed, ours.backed),
                                   ours.exchange - std::min(at.exchange, ours.exchange));
  if (behind <= kNear) return false;
  const auto usual = claims_.pace().usual();
  const Duration recent = options_.answer / kNearParts;
  return !usual || static_cast<double>(behind) * to_seconds(*usual) > to_seconds(recent);
}

// A gatherer sends its commit to all, whatever it has heard of them, and in a group all do.
bool AllReduceMachine::is_answer(Member from, const Note& note) const {
  if (std::holds_alternative<reduce::Commit>(note.what))
    return from != owner(note.attempt) && !options_.any_mean;
  return is_one_of<reduce::Wait, reduce::NotYet, reduce::Ahead, reduce::List, reduce::Standing,
                   reduce::Done>(note.what);
}

void AllReduceMachine::hear(Member from, Progress at, Attempt attempt, reduce::What what) {
  std::visit([&](auto& its) { receive(from, at, attempt, its); }, what);
}

void AllReduceMachine::handle(PieceReceived& piece) {
  if (piece.from >= names_.size() || piece.from == self_ || piece.epoch != epoch_) return;
  note_heard(piece.from, piece.at);
  if (!current_ || piece.at != current_->at) return;
  Participation& c = *current_;
  if (piece.place == place_of(Phase::kResult, 0)) {
    receive_mean(piece);
  } else if (c.run && piece.attempt == c.joined) {
    const std::size_t step = c.run->reduction.step();
    switch (reduce(piece.from, piece.place, piece.floats)) {
      case Reduction::Taken::kYes:
        c.note_wait(piece.from, step, now_);
        c.wait(now_);
        return after_progress();
      case Reduction::Taken::kWrong:
        return refuse_numbers(piece.from);
      case Reduction::Taken::kNotNow:
        return;
    }
  } else if (piece.attempt == c.promised && c.promised > c.joined && c.gatherer() != self_) {
    c.early.keep(piece.from, piece.place, std::move(piece.floats));
  }
}

void AllReduceMachine::handle(Tick&) {
  tick_gather();
  if (claims_.looks_at() && now_ >= *claims_.looks_at()) look_ahead();
  if (current_ && now_ >= current_->probes_at(patience())) probe_others();
  const auto gives_up = current_ ? current_->gives_up_at(patience(), liveness_) : std::nullopt;
  if (gives_up && now_ >= *gives_up) stop_waiting();
  const auto leaves = leaves_gatherer_at();
  if (leaves && now_ >= *leaves) take_part_in(current_->bounds.later());
  const auto source_gives_up = source_gives_up_at();
  if (source_gives_up && now_ >= *source_gives_up) give_up_donor();
}

bool AllReduceMachine::are_members(const Members& members) const {
  return !members.empty() && members.back() < names_.size() &&
         std::ranges::adjacent_find(members, std::greater_equal<>()) == members.end();
}

void AllReduceMachine::send(Member to, Progress at, Attempt attempt, reduce::What what) {
  if (std::holds_alternative<reduce::AskProgress>(what)) liveness_.asked(to, now_);
  actions_.emplace_back(
      SendNote{to, {.epoch = epoch_, .at = at, .attempt = attempt, .what = std::move(what)}});
}

void AllReduceMachine::send_to_others(Progress at, Attempt attempt, const reduce::What& what) {
  for (Member m = 0; m < names_.size(); ++m) {
    if (m != self_) send(m, at, attempt, what);
  }
}

void AllReduceMachine::say_seldom(const std::string& topic, std::string line, LogLevel level) {
  if (records_->is_line_due(topic, now_)) say(level, std::move(line));
}

void AllReduceMachine::say(LogLevel level, std::string line) {
  actions_.emplace_back(Say{level, std::move(line)});
}

}  // namespace starling::collective

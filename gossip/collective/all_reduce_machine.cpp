// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/all_reduce_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "core/base/list_some.h"

namespace starling::collective {
namespace {

using Kind = protocol::ReduceNote::Kind;

// A list comes within so many times what is learned of its parts.
constexpr int kListWaits = 2;
constexpr Exchange kExchangeMax = std::numeric_limits<Exchange>::max() - 2;
constexpr unsigned kDoublingsMax = 10;

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
      claims_(names_.size(), next.exchange) {
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
  now_ = now;
  std::visit([this](auto& e) { handle(e); }, event);
  consider();
  return std::exchange(actions_, {});
}

std::optional<TimePoint> AllReduceMachine::next_deadline() const {
  std::optional<TimePoint> due = gather_deadline();
  const auto sooner = [&](std::optional<TimePoint> time) {
    if (time) due = std::min(due.value_or(*time), *time);
  };
  sooner(gives_up_at());
  sooner(source_gives_up_at());
  if (current_) sooner(claims_.looks_at());
  return due;
}

// --- events --------------------------------------------------------------------------------------

void AllReduceMachine::handle(Begin& begin) {
  STARLING_CHECK(!last_ || begin.at > last_->commit.at);
  claims_.begin(begin.at);
  if (!resume(begin)) {
    if (!donors_.empty() && begin.at >= next_) claims_.pace().took(begin.at.exchange, now_);
    wants_served_.clear();
    const std::size_t floats = begin.input.values.size();
    current_ = Current{.at = begin.at,
                       .input = std::move(begin.input),
                       .begun_at = now_,
                       .bounds = AttemptBounds(names_.size()),
                       .early = EarlyPieces(floats, names_.size()),
                       .waits_since = now_};
  }
  next_ = {begin.at.backed, begin.at.exchange + 1};
  if (gather_ && gather_->at != begin.at) gather_.reset();
  look_ahead();
  if (!current_) return;
  for (Member m = 0; m < names_.size(); ++m) {  // silent members may be back
    if (liveness_.silent_since(m)) send(m, make_note(Kind::kAsk, begin.at, 0));
  }
  const auto committed = std::exchange(committed_, {});
  if (committed && committed->at == begin.at) {
    if (gathered_) arrivals_.learn(now_ - gathered_->from);
    look_for(*committed);
    if (settled_ == begin.at) return;
  }
  const auto asked_for = std::exchange(asked_for_, {});
  if (asked_for && asked_for->first == begin.at && !was_listed(begin.at, asked_for->second) &&
      (!gather_ || gather_->attempt < asked_for->second)) {
    return take_part_in(asked_for->second);
  }
  register_with(liveness_.is_lost(gatherer_, now_) ? gatherer_after(gatherer_) : gatherer_);
}

void AllReduceMachine::handle(LinkUp& event) {
  if (event.member >= names_.size() || event.member == self_) return;
  const bool is_first = !liveness_.is_met(event.member);
  liveness_.heard(event.member, now_);
  if (is_first && waiting_for() == event.member) current_->waits_since = now_;
  // Without a majority nobody who returns is passed over.
  if (2 * expected_.size() <= names_.size()) expected_.insert(event.member);
  if (event.at && event.at->backed <= event.at->exchange && *event.at > open())
    hear_of_later(event.member, *event.at);
  resend(event.member);
}

void AllReduceMachine::handle(LinkDown& event) {
  if (event.member >= names_.size() || event.member == self_) return;
  liveness_.link_down(event.member, now_);
  claims_.forget(event.member);
}

void AllReduceMachine::handle(NoteReceived& event) {
  protocol::ReduceNote& note = event.note;
  if (event.from >= names_.size() || event.from == self_ || note.epoch != epoch_) return;
  if (note.backed > note.exchange || note.exchange > kExchangeMax) return;  // cannot be
  liveness_.heard(event.from, now_);
  switch (note.kind) {
    case Kind::kRegister:
      return receive_register(event.from, note);
    case Kind::kList:
      return receive_list(event.from, note);
    case Kind::kDone:
      return receive_done(event.from, note);
    case Kind::kCommit:
      return receive_commit(event.from, note);
    case Kind::kWant:
      return receive_want(event.from, note);
    case Kind::kAsk:
      return receive_ask(event.from, note);
    case Kind::kWait:
      if (gather_ && note.attempt == gather_->attempt && progress_of(note) == gather_->at) {
        gather_->late.insert(event.from);
      }
      // The gatherer is there, and others are late. A liar could say so for ever.
      if (current_ && !current_->run && !current_->fetch && waiting_for() == event.from &&
          now_ < current_->promised_at + list_wait()) {
        wait();
      }
      return;
    case Kind::kAhead:
      if (!are_members(note.members)) return;
      return hear_of_further(event.from, progress_of(note), std::move(note.members));
    case Kind::kNotYet:
      return receive_not_yet(event.from, note);
  }
}

void AllReduceMachine::handle(PieceReceived& piece) {
  if (piece.from >= names_.size() || piece.from == self_ || piece.epoch != epoch_) return;
  liveness_.heard(piece.from, now_);
  if (!current_ || piece.at != current_->at) return;
  Current& c = *current_;
  if (piece.place == place_of(Phase::kResult, 0)) {
    receive_mean(piece);
  } else if (c.run && piece.attempt == c.joined) {
    if (!reduce(piece.from, piece.place, piece.floats)) return;
    wait();
    after_progress();
  } else if (piece.attempt == c.promised && c.promised > c.joined && owner(c.promised) != self_) {
    c.early.keep(piece.from, piece.place, std::move(piece.floats));
  }
}

void AllReduceMachine::handle(Tick&) {
  tick_gather();
  if (claims_.looks_at() && now_ >= *claims_.looks_at()) look_ahead();
  const auto gives_up = gives_up_at();
  if (gives_up && now_ >= *gives_up) stop_waiting();
  const auto source_gives_up = source_gives_up_at();
  if (source_gives_up && now_ >= *source_gives_up) try_next_source();
}

// --- a member's side -----------------------------------------------------------------------------

// Takes part in the next attempt of this gatherer.
void AllReduceMachine::register_with(Member gatherer) {
  // Somebody registered here already: the others are asked to come.
  take_part_in(gather_ ? gather_->attempt : next_attempt(gatherer));
}

void AllReduceMachine::take_part_in(Attempt attempt) {
  promise(attempt);
  report();
}

// After an attempt that came to nothing.
void AllReduceMachine::try_again_with(Member gatherer) {
  ++current_->failed[owner(current_->promised)];
  take_part_in(std::max(next_attempt(gatherer), current_->bounds.later()));
}

void AllReduceMachine::promise(Attempt attempt) {
  Current& c = *current_;
  if (attempt <= c.promised) return;
  c.blame = blame();
  c.promised = attempt;
  c.promised_at = now_;
  c.run.reset();
  c.fetch.reset();  // what still comes of it must not undo what we now report
  c.sent.clear();
  c.early.clear();
  if (gather_ && gather_->attempt < attempt) {
    if (owner(attempt) != self_) drop_gather(attempt);
    gather_.reset();
  }
}

void AllReduceMachine::report() {
  const Current& c = *current_;
  wait();
  const Member to = owner(c.promised);
  if (to == self_) {
    const bool is_first = c.promised <= names_.size() && self_ == gatherer_;
    Gather& gather = open_gather(c.at, c.promised);
    add(self_, registration());
    const bool is_minority = c.at.backed < c.at.exchange;  // looks for the others each time
    if ((!is_first || is_minority) && !gather.asked_at && !gather.list) ask_all();
    return;
  }
  const Registration own = registration();
  protocol::ReduceNote message = make_note(Kind::kRegister, c.at, c.promised);
  message.held = own.held.attempt;
  message.members = own.held.attempt != 0 ? own.held.members : own.lost;
  if (own.held.attempt != 0) message.sha256 = own.held.sha256;
  message.weak = own.held.weak;
  message.fresh = own.fresh;
  if (own.blame) {
    message.other = own.blame->member;
    message.count = own.blame->count;
  }
  send(to, std::move(message));
}

// A link or a question alone is no sign that the gatherer gets on.
void AllReduceMachine::report_again() {
  const TimePoint since = current_->waits_since;
  report();
  current_->waits_since = since;
}

Registration AllReduceMachine::registration() const {
  const Current& c = *current_;
  return {.held = {c.held.attempt, c.held.members, {}, c.held.sha256, c.held.weak},
          .lost = liveness_.lost(now_),
          .blame = c.blame,
          .fresh = memory_ != Memory::kWhole};
}

// For whom we have waited in vain, or for so long that it may be the cause of others' waiting.
std::optional<Blame> AllReduceMachine::blame() const {
  const Current& c = *current_;
  const auto member = waiting_for();
  if (!member || c.promised == 0 || c.held.attempt == c.promised) return c.blame;
  const Duration longest = c.run ? piece_wait() : options_.answer;
  if (now_ < c.waits_since + longest / 2 && !liveness_.is_gone(*member, now_)) return c.blame;
  constexpr std::size_t kMost = std::numeric_limits<std::uint16_t>::max();
  const std::size_t pieces = c.run ? 1 + c.run->reduction.step() : 0;
  return Blame{*member, static_cast<std::uint16_t>(std::min(1 + pieces, kMost))};
}

void AllReduceMachine::receive_list(Member from, protocol::ReduceNote& note) {
  if (!current_ || progress_of(note) != current_->at || !are_members(note.members)) return;
  Current& c = *current_;
  if (note.attempt != c.promised || note.attempt <= c.joined || owner(note.attempt) != from) return;
  if (note.held != 0 && (note.other >= names_.size() || !note.sha256)) return;
  const bool accuses = note.count != 0 && note.other < names_.size() && note.other != self_;
  if (accuses) liveness_.call_silent(note.other, now_);
  const auto blamed = std::exchange(c.blame, std::nullopt);
  wait();
  c.weak = note.weak || !is_quorum(note.members.size());
  if (note.held != 0) {
    if (blamed)
      liveness_.call_silent(blamed->member, now_);  // others have got all that they waited for
    c.joined = note.attempt;
    Mean mean{note.held, std::move(note.members), {}, *note.sha256};
    if (holds(note.sha256)) {
      mean.floats = c.held.floats;
      return accept(std::move(mean));
    }
    if (note.other == self_) return;
    return fetch({.mean = std::move(mean), .source = note.other});
  }
  const bool takes_part = std::ranges::binary_search(note.members, self_);
  // How late the last one was, as far as a member sees it that may be the next gatherer.
  if (from != self_ && c.joined == 0) {
    arrivals_.learn(std::min(now_ - c.begun_at, lateness_max(c.begun_at, c.begun_at)));
  }
  c.joined = note.attempt;
  if (takes_part) join(std::move(note.members));
}

void AllReduceMachine::join(Members members) {
  Current& c = *current_;
  const std::size_t count = members.size();
  const auto index = static_cast<std::size_t>(std::ranges::find(members, self_) - members.begin());
  const Shape shape = choose_shape(options_.shape, count, c.input.values.size());
  c.run = Run{std::move(members), Reduction(shape, index, count, c.input)};
  std::vector<Reduction::Outgoing> out;
  c.run->reduction.start(out);
  emit(out);
  for (const auto& [key, piece] : c.early.take()) {
    (void)reduce(key.first, key.second, piece);
  }
  after_progress();
}

// False, and nothing has changed: it is not a piece that can come now.
bool AllReduceMachine::reduce(Member from, std::uint64_t place, const Floats& piece) {
  Run& run = *current_->run;
  const auto at = std::ranges::find(run.members, from);
  if (at == run.members.end()) return false;
  std::vector<Reduction::Outgoing> out;
  const auto index = static_cast<std::size_t>(at - run.members.begin());
  if (!run.reduction.take(index, place, piece, out)) return false;
  emit(out);
  return true;
}

void AllReduceMachine::emit(std::vector<Reduction::Outgoing>& out) {
  Current& c = *current_;
  for (Reduction::Outgoing& piece : out) {
    c.sent.push_back(
        {c.run->members[piece.to], c.at, c.joined, piece.place, std::move(piece.floats)});
    actions_.emplace_back(c.sent.back());
  }
}

void AllReduceMachine::after_progress() {
  Current& c = *current_;
  if (!c.run->reduction.done()) return;
  Mean mean{c.joined, std::move(c.run->members), c.run->reduction.mean()};
  mean.sha256 = sha256(as_bytes(mean.floats.values));
  c.run.reset();
  accept(std::move(mean));
}

// In the attempt at hand.
void AllReduceMachine::accept(Mean mean) {
  Current& c = *current_;
  mean.attempt = c.joined;
  mean.weak = c.weak;
  c.held = std::move(mean);
  if (owner(c.joined) != self_) return send_done();
  note_done(self_, c.held.sha256);
}

void AllReduceMachine::send_done() {
  const Current& c = *current_;
  protocol::ReduceNote done = make_note(Kind::kDone, c.at, c.joined);
  done.sha256 = c.held.sha256;
  send(owner(c.joined), std::move(done));
}

void AllReduceMachine::learn_from(const AllReduceMachine& former) {
  arrivals_.learn_from(former.arrivals_);
  pieces_.learn_from(former.pieces_);
  claims_.pace() = former.claims_.pace();
  is_left_out_ = former.is_left_out_;
  missing_said_at_ = former.missing_said_at_;
}

bool AllReduceMachine::holds(const std::optional<Sha256Digest>& sha256) const {
  const Mean& held = current_->held;
  return held.attempt != 0 && held.sha256 == sha256;
}

// --- waiting -------------------------------------------------------------------------------------

std::optional<Member> AllReduceMachine::waiting_for() const {
  if (!current_) return std::nullopt;
  const Current& c = *current_;
  if (c.fetch) return c.fetch->source;
  if (c.run) return c.run->members[c.run->reduction.waits_for()];
  if (c.promised == 0 || owner(c.promised) == self_) return std::nullopt;
  return owner(c.promised);
}

// Something came of it: waits from now on.
void AllReduceMachine::wait() {
  Current& c = *current_;
  if (c.run || c.held.attempt == c.promised) {
    c.longest_wait = std::max(c.longest_wait, now_ - c.waits_since);
  }
  c.waits_since = now_;
}

Duration AllReduceMachine::piece_wait() const {
  return std::max(pieces_.duration(), options_.answer);
}

// Attempts that came to nothing leave the next ones more time: what seems stuck may only be slow.
// They are counted here; the numbers of others' attempts say nothing.
Duration AllReduceMachine::stretched(Duration wait) const {
  unsigned failed = 0;
  if (current_) {
    for (const auto& [gatherer, times] : current_->failed) failed = std::max(failed, times);
  }
  const unsigned doublings = std::min(failed > 2 ? failed - 2 : 0, kDoublingsMax);
  return std::min(wait * (1U << doublings), std::max(wait, options_.stragglers.max));
}

// The longest that heartbeats put off another attempt.
Duration AllReduceMachine::list_wait() const {
  return kListWaits * stretched(arrivals_.duration() + piece_wait() + options_.answer);
}

std::optional<TimePoint> AllReduceMachine::gives_up_at() const {
  const auto member = waiting_for();
  if (!member) return std::nullopt;
  const Current& c = *current_;
  // In the first exchange links may still be made.
  const bool is_starting =
      !last_ && (c.run || !liveness_.is_met(*member)) && !liveness_.silent_since(*member);
  const bool for_gatherer = !c.run && !c.fetch && c.held.attempt != c.promised;
  // Another was waited for in vain before: the gatherer may be the cause.
  const Duration for_list = c.blame ? options_.answer / 2 : options_.answer;
  const Duration longest = for_gatherer ? for_list : piece_wait();
  TimePoint until = c.waits_since + stretched(longest);
  if (is_starting) until = std::max(until, c.waits_since + options_.stragglers.initial);
  return liveness_.waits_until(*member, c.waits_since, until);
}

// In vain. Whoever is silent as a gatherer is not one again before it is heard; of a piece the
// gatherer finds out who is the cause.
void AllReduceMachine::stop_waiting() {
  Current& c = *current_;
  const Member silent = *waiting_for();
  const Member gatherer = owner(c.promised);
  const bool of_others = c.run || c.fetch;
  if (of_others) {
    say(LogLevel::kWarning,
        fmt::format("{} sends nothing in exchange {}, attempt {}: the exchange begins again",
                    names_[silent], c.at.exchange, c.joined));
  }
  const Member next = of_others && silent != gatherer ? gatherer : gatherer_after(gatherer);
  if (silent == gatherer) liveness_.call_silent(silent, now_);
  try_again_with(next);
}

// All that may have been lost with the former link. No deadline is put off: a member that dials
// again and again would put it off for ever.
void AllReduceMachine::resend(Member to) {
  if (current_) {
    const Current& c = *current_;
    if (c.ended && c.ended->asked() == to) ask_source();
    if (c.fetch) {
      if (c.fetch->source == to) ask_holder();
    } else if (c.promised != 0 && owner(c.promised) == to && !c.run) {
      if (c.held.attempt == c.promised) {
        send_done();
      } else {
        report_again();
      }
    }
    for (const SendPiece& piece : c.sent) {
      if (piece.to == to) actions_.emplace_back(piece);
    }
  }
  if (gather_ && gather_->list && gather_->registered.contains(to)) {
    return;  // it registers again: it may have been started again meanwhile
  }
  if (gather_ && gather_->asked_at && !gather_->registered.contains(to)) {
    send(to, make_note(Kind::kAsk, gather_->at, gather_->attempt));
  } else if (last_ && owner(last_->commit.attempt) == self_) {
    send_commit(to, last_->commit);
  }
}

void AllReduceMachine::receive_ask(Member from, const protocol::ReduceNote& note) {
  const Progress at = progress_of(note);
  if (answer_if_over(from, note)) return;
  if (current_ && at == current_->at && note.attempt != 0) {
    if (!is_plausible(from, note.attempt)) return;
    if (note.attempt < current_->promised) {
      return send(from, make_note(Kind::kAsk, at, current_->promised));
    }
    if (note.attempt == current_->promised) {  // no sign that the gatherer gets on
      if (current_->joined < note.attempt) report_again();
      return;
    }
    if (current_->bounds.follows(from, note.attempt, current_->promised)) {
      return take_part_in(note.attempt);
    }
  } else if (is_plausible(from, note.attempt) && (at == next_ || may_follow(at))) {
    const std::pair asked_for(at, note.attempt);
    asked_for_ = std::max(asked_for_.value_or(asked_for), asked_for);
  }
  send(from, make_note(Kind::kWait, at, note.attempt));
  if (at > open()) hear_of_later(from, at);
}

// --- small things --------------------------------------------------------------------------------

Member AllReduceMachine::owner(Attempt attempt) const {
  return static_cast<Member>((attempt - 1) % names_.size());
}

Attempt AllReduceMachine::attempt_after(Attempt former, Member gatherer) const {
  const auto n = static_cast<Attempt>(names_.size());
  const Attempt first = gatherer + 1;
  return former < first ? first : first + (former - first + n) / n * n;
}

// The first one of this gatherer that leaves behind all that we take part in or gathered.
Attempt AllReduceMachine::next_attempt(Member gatherer) const {
  const bool listed = listed_ && listed_->at == open();
  const Attempt promised = current_ ? current_->promised : 0;
  return attempt_after(listed ? std::max(promised, listed_->attempt) : promised, gatherer);
}

// Members of the last mean come first.
Member AllReduceMachine::gatherer_after(Member former) const {
  for (const bool was_there : {true, false}) {
    for (std::size_t i = 1; i <= names_.size(); ++i) {
      const auto m = static_cast<Member>((former + i) % names_.size());
      if (expected_.contains(m) == was_there && !liveness_.is_lost(m, now_) && m != former)
        return m;
    }
  }
  return self_;
}

bool AllReduceMachine::is_plausible(Member from, Attempt attempt) {
  if (!current_) return AttemptBounds(names_.size()).is_plausible(from, attempt, 0);
  return current_->bounds.is_plausible(from, attempt, current_->promised);
}

bool AllReduceMachine::are_members(const Members& members) const {
  return !members.empty() && members.back() < names_.size() &&
         std::ranges::adjacent_find(members, std::greater_equal<>()) == members.end();
}

protocol::ReduceNote AllReduceMachine::make_note(Kind kind, Progress at, Attempt attempt) const {
  return {.kind = kind,
          .epoch = epoch_,
          .exchange = at.exchange,
          .attempt = attempt,
          .backed = at.backed};
}

void AllReduceMachine::send(Member to, protocol::ReduceNote note) {
  actions_.emplace_back(SendNote{to, std::move(note)});
}

void AllReduceMachine::say(LogLevel level, std::string line) {
  actions_.emplace_back(Say{level, std::move(line)});
}

}  // namespace starling::collective

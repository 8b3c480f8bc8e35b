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

// More than any member needs in one exchange: a bound on what one may make us send.
constexpr unsigned kWantsMax = 16;
// A leader's attempts go up by one of its own at a time; nobody honest is so many ahead.
constexpr std::uint64_t kAttemptsAhead = 4096;
constexpr Duration kSayEvery = std::chrono::seconds(10);
constexpr std::size_t kNamedMax = 8;
constexpr unsigned kDoublingsMax = 10;  // of the time that an attempt is given
constexpr std::uint64_t kAttemptMax = std::uint64_t{1} << 31;  // leaves room on the wire

}  // namespace

AllReduceMachine::AllReduceMachine(const AllReduceOptions& options, Epoch epoch, Member self,
                                   std::vector<std::string> names, Progress next)
    : options_(options),
      epoch_(epoch),
      self_(self),
      names_(std::move(names)),
      next_(next),
      peers_(names_.size()),
      arrivals_(options.stragglers),
      pace_(next.exchange) {
  STARLING_CHECK(self < names_.size());
}

std::vector<Action> AllReduceMachine::on(Event event, TimePoint now) {
  now_ = now;
  std::visit([this](auto& e) { handle(e); }, event);
  consider();
  return std::exchange(actions_, {});
}

std::optional<TimePoint> AllReduceMachine::next_deadline() const {
  std::optional<TimePoint> due;
  auto at = [&](TimePoint time) { due = due ? std::min(*due, time) : time; };
  if (current_) at(current_->repeat_at);
  if (current_ && current_->lead && !is_late()) at(current_->first_at + arrivals_.duration());
  if (current_ && current_->lead && unsure_until() > now_) at(unsure_until());
  for (const Peer& peer : peers_) {
    if (peer.begun && *peer.begun >= next_ && !peer.declined) {
      at(peer.begun_at + arrivals_.duration());
    }
  }
  return due;
}

std::vector<Member> AllReduceMachine::waiting_for() const {
  if (!current_) return {};
  const Current& c = *current_;
  if (c.want) return {c.want->from};
  if (c.run)
    return c.run->reduction.done() ? Members{}
                                   : Members{c.run->members[c.run->reduction.waits_for()]};
  if (!c.lead) return {c.reported_to};
  Members members;
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m == self_ || !is_reachable(m)) continue;
    const bool awaited = std::ranges::find(c.lead->awaited, m) != c.lead->awaited.end();
    const bool open = c.lead->stage == Lead::Stage::kRunning
                          ? awaited && !peers_[m].done
                          : !has_answered(m) && peers_[m].asked == c.lead->attempt;
    if (open) members.push_back(m);
  }
  return members;
}

std::size_t AllReduceMachine::early_floats() const {
  std::size_t floats = 0;
  for (const auto& [key, early] : early_) floats += early.floats.values.size();
  return floats;
}

// --- what happens to us --------------------------------------------------------------------------

void AllReduceMachine::handle(Begin& begin) {
  STARLING_CHECK(!last_ || begin.at > last_->at);
  TimePoint first = now_;
  for (const Peer& peer : peers_) {
    if (peer.begun == begin.at) first = std::min(first, peer.begun_at);
  }
  if (declined(begin.at)) arrivals_.learn(now_ - first);
  if (!further_.empty() && begin.at >= next_) pace_.took(begin.at.exchange, now_);
  for (Peer& peer : peers_) {
    if (peer.ahead && *peer.ahead <= begin.at) be_with_us(peer);
    peer.sounded = false;
    peer.asked = 0;
    peer.done = false;
    peer.wants = 0;
  }
  early_.clear();
  current_ = Current{};
  // Nobody gave a model: they are not asked for it again in the same moment.
  if (begin.at < next_) current_->stays_until = now_ + options_.repeat;
  next_ = {begin.at.backed, begin.at.exchange + 1};
  current_->at = begin.at;
  current_->input = std::move(begin.input);
  current_->first_at = first;
  current_->repeat_at = now_ + options_.repeat;
  if (follow_the_further()) return;
  const Member to = leader();
  const Attempt attempt = next_attempt(to);
  current_->reported_to = to;
  promise(attempt);
  if (to == self_) {
    lead(attempt, false);
    for (Member m = 0; m < peers_.size(); ++m) ask_ahead(m);
  } else {
    send_state(to);
  }
}

void AllReduceMachine::handle(Reachable& event) {
  if (event.member >= peers_.size() || event.member == self_) return;
  if (is_reachable(event.member)) return put_again(event.member);
  Peer& peer = peers_[event.member];
  peer.reachable = true;
  peer.unsure = false;
  peer.asked = 0;
  peer.wants = 0;
  if (!current_) return;
  const Current& c = *current_;
  const bool leaves = c.joined == 0 && c.held.attempt == 0 && leader() != c.reported_to;
  if (leaves) return report();
  // A link was replaced by another: whom we follow has heard that we lack this member.
  const bool waits = !c.lead && c.reported_to != self_ && c.promised > c.joined;
  if (waits && c.held.attempt == 0) send_state(c.reported_to);
}

void AllReduceMachine::handle(Unreachable& event) {
  if (event.member >= peers_.size() || event.member == self_) return;
  if (!is_reachable(event.member)) return;
  Peer& peer = peers_[event.member];
  peer.reachable = false;
  if (!event.for_good) be_unsure(peer);
  peer.begun.reset();
  peer.not_yet.reset();
  peer.declined = false;
  peer.sounded = false;
  be_with_us(peer);
  std::erase_if(early_, [&](const auto& entry) { return entry.first.first == event.member; });
  if (!current_) return;
  Current& c = *current_;
  auto is_in = [&](const Members& members) {
    return std::ranges::find(members, event.member) != members.end();
  };
  const bool wanted = c.want && c.want->from == event.member;
  if (wanted) c.want.reset();
  const bool awaited = c.lead && is_in(c.lead->awaited);
  const bool in_run = c.run && is_in(c.run->members);
  if (awaited || in_run) {
    say(LogLevel::kWarning, fmt::format("{} was lost in exchange {}, attempt {}: the "
                                        "others begin again without it",
                                        names_[event.member], c.at.exchange, c.joined));
  }
  if (wanted || awaited || in_run || c.reported_to == event.member) report();
}

void AllReduceMachine::handle(NoteReceived& event) {
  protocol::ReduceNote& note = event.note;
  if (event.from >= peers_.size() || event.from == self_ || note.epoch != epoch_) return;
  if (note.backed > note.exchange + (note.kind == Kind::kCommit ? 1 : 0)) return;  // cannot be
  switch (note.kind) {
    case Kind::kState:
      return receive_state(event.from, note);
    case Kind::kAttempt:
      return receive_attempt(event.from, note);
    case Kind::kDone:
      return receive_done(event.from, note);
    case Kind::kCommit:
      return receive_commit(event.from, note);
    case Kind::kWant:
      return receive_want(event.from, note);
    case Kind::kAsk:
      return receive_ask(event.from, note);
    case Kind::kNotYet:
      return receive_not_yet(event.from, note);
  }
}

void AllReduceMachine::handle(PieceReceived& piece) {
  if (piece.from >= peers_.size() || piece.from == self_ || piece.epoch != epoch_) return;
  if (!current_ || piece.at != current_->at) return;
  Current& c = *current_;
  if (piece.place == place_of(Phase::kResult, 0)) {
    const bool wanted = c.want && c.want->from == piece.from && c.want->attempt == piece.attempt &&
                        piece.floats.values.size() == c.input.values.size();
    if (wanted) take_result(piece.floats);
  } else if (c.run && piece.attempt == c.joined) {
    const auto at = std::ranges::find(c.run->members, piece.from);
    if (at == c.run->members.end()) return;
    std::vector<Reduction::Outgoing> out;
    const auto from = static_cast<std::size_t>(at - c.run->members.begin());
    if (!c.run->reduction.take(from, piece.place, piece.floats, out)) return;
    emit(out);
    after_progress();
  } else if (piece.attempt == c.promised && c.promised > c.joined && owner(c.promised) != self_) {
    hold_early(piece);
  }
}

void AllReduceMachine::handle(Tick&) {
  for (Member m = 0; m < peers_.size(); ++m) {
    if (!is_overdue(m)) continue;
    if (!std::exchange(is_left_out_, true)) {
      say(LogLevel::kWarning,
          fmt::format("we are late for exchange {}, which {} has begun: it goes on without us",
                      peers_[m].begun->exchange, names_[m]));
    }
    for (Member other = 0; other < peers_.size(); ++other) {  // or their leaders would differ
      const bool same = peers_[other].begun == peers_[m].begun && !peers_[other].declined;
      if (same && other != m) decline(other);
    }
    decline(m);
  }
  if (current_ && now_ >= current_->repeat_at) repeat();
}

// --- notes ---------------------------------------------------------------------------------------

void AllReduceMachine::receive_state(Member from, protocol::ReduceNote& note) {
  const Progress at = progress_of(note);
  if (last_ && at <= last_->at) {
    if (at == last_->at && last_->first_at) {
      arrivals_.learn(now_ - *last_->first_at);
    }
    return send_last(from);
  }
  if (is_long_over(at)) return say_it_is_over(from);
  const bool is_current = current_ && at == current_->at;
  if (!is_current && at < next_) {  // passed over here
    return send(from, Kind::kNotYet, at, 0);
  }
  if (!note.members.empty() && !are_members(note.members)) return;
  Peer& peer = peers_[from];
  if (!peer.reachable) return;
  if (peer.begun != at) {
    peer.begun_at = now_;
    peer.declined = false;
    peer.asked = 0;
  }
  peer.begun = at;
  peer.attempt = note.attempt;
  peer.held = note.members.empty() ? 0 : note.held;
  const bool lacks_more = std::ranges::any_of(note.members, [&](Member m) {
    return peer.held == 0 && is_reachable(m) && !std::ranges::binary_search(peer.members, m);
  });
  if (lacks_more) be_unsure(peer);
  if (note.members.empty()) peer.unsure = false;
  peer.members = std::move(note.members);
  if (!is_current) {
    ask_ahead(from);
    // They ended one that we have not begun.
    if (is_beyond_next(at) || declined(at)) decline(from);
    return;
  }
  Current& c = *current_;
  be_with_us(peer);
  if (!c.lead && declined(at)) decline(from);  // we told others not to count on us
  const bool mine = note.attempt != 0 && owner(note.attempt) == self_;
  if (c.lead && mine && peer.attempt > c.promised && is_plausible(peer.attempt)) {
    promise(peer.attempt);
    lead(peer.attempt, true);
  }
}

void AllReduceMachine::receive_attempt(Member from, protocol::ReduceNote& note) {
  if (!current_ || progress_of(note) != current_->at || note.attempt == 0) return;
  Current& c = *current_;
  if (note.attempt != c.promised || note.attempt <= c.joined || owner(note.attempt) != from ||
      !are_members(note.members)) {
    return;
  }
  if (note.held != 0) {
    c.joined = note.attempt;
    if (c.held.attempt == note.held) return send(from, Kind::kDone, c.at, note.attempt);
    return want({Want::For::kStanding, from, note.held, std::move(note.members)});
  }
  auto is_in = [&](Member m) { return std::ranges::binary_search(note.members, m); };
  if (c.held.attempt != 0 || !is_in(self_) || !is_in(from)) return;
  // Someone of them is out of our reach, and the leader does not know.
  if (!std::ranges::all_of(note.members, [&](Member m) { return is_reachable(m); })) {
    c.joined = note.attempt;  // and left at once: the report must be about the next
    return report();
  }
  join(note.attempt, std::move(note.members));
}

void AllReduceMachine::receive_commit(Member from, protocol::ReduceNote& note) {
  if (!current_ || !are_members(note.members)) return;
  Current& c = *current_;
  const Progress at = progress_of(note);
  if (note.attempt == 0) {
    const Progress next{note.backed, note.exchange + 1};
    if (!may_follow(next)) hear_of_further(from, next, std::move(note.members));
    return;
  }
  if (at > c.at) {
    const Progress next = after(at, note.members);
    return hear_of_further(from, next, std::move(note.members));
  }
  if (at < c.at) return;
  if (c.held.attempt == note.attempt && c.held.members == note.members) {
    return finish(std::move(c.held));
  }
  if (c.want && c.want->purpose == Want::For::kFinish) return;
  want({Want::For::kFinish, from, note.attempt, std::move(note.members)});
}

void AllReduceMachine::receive_want(Member from, const protocol::ReduceNote& note) {
  const Mean* mean = nullptr;
  const Progress at = progress_of(note);
  if (last_ && at == last_->at) {
    mean = &last_->mean;
  } else if (current_ && at == current_->at) {
    mean = &current_->held;
  } else if (last_ && at < last_->at) {
    return send_last(from);
  }
  if (mean == nullptr && at < next_) {  // passed over here: the word was another's
    return send(from, Kind::kNotYet, at, 0);
  }
  if (mean == nullptr || mean->attempt == 0 || mean->attempt != note.attempt) return;
  if (peers_[from].wants == kWantsMax) return;
  ++peers_[from].wants;
  actions_.push_back(SendPiece{from, at, note.attempt, place_of(Phase::kResult, 0), mean->floats});
}

void AllReduceMachine::receive_ask(Member from, const protocol::ReduceNote& note) {
  if (note.attempt == 0 || owner(note.attempt) != from) return;
  const Progress at = progress_of(note);
  if (last_ && at <= last_->at) return send_last(from);
  if (is_long_over(at)) return say_it_is_over(from);
  if (!current_ || at != current_->at) return send(from, Kind::kNotYet, at, note.attempt);
  Current& c = *current_;
  if (!is_plausible(note.attempt)) return;
  if (note.attempt > c.promised) {
    promise(note.attempt);
    if (is_reachable(from)) c.reported_to = from;
  }
  send_state(from);
}

void AllReduceMachine::receive_not_yet(Member from, const protocol::ReduceNote& note) {
  const Progress at = progress_of(note);
  peers_[from].not_yet = at;
  peers_[from].not_yet_attempt = note.attempt;
  if (!current_ || at != current_->at) return;
  Current& c = *current_;
  if (note.attempt != 0) peers_[from].begun.reset();  // it may have begun, and given up
  if (c.want && c.want->from == from) {  // it does not hold what it has passed on the word of
    const bool is_over = c.want->purpose == Want::For::kFinish;
    c.want.reset();
    return is_over && c.reported_to != from ? repeat() : report();
  }
  const bool awaited = c.lead && std::ranges::find(c.lead->awaited, from) != c.lead->awaited.end();
  if (note.attempt == 0 ? c.reported_to == from : awaited) report();
}

// --- a member's side -----------------------------------------------------------------------------

// The lowest who is reachable and has not asked to be left out; the same in all views once they
// agree on who that is. It is never relied upon: attempts are.
Member AllReduceMachine::leader() const {
  const Progress at = current_->at;
  for (Member m = 0; m < peers_.size(); ++m) {
    const bool out = m == self_ ? declined(at) : peers_[m].not_yet == at || peers_[m].elsewhere;
    if (is_reachable(m) && !out) return m;
  }
  return self_;
}

// The leader's first attempt that leaves behind what we take part in, and breaks no promise.
AllReduceMachine::Attempt AllReduceMachine::next_attempt(Member leader) const {
  const Attempt least = std::max<Attempt>({current_->promised, current_->joined + 1, 1});
  const Attempt n = peers_.size();
  const Attempt own = leader + 1;
  return least <= own ? own : own + (least - own + n - 1) / n * n;
}

// Leaves the attempt at hand, and tells the leader (or begins to lead).
void AllReduceMachine::report() {
  const Member to = leader();
  const Attempt attempt = next_attempt(to);
  current_->reported_to = to;
  promise(attempt);
  if (to == self_) {
    lead(attempt, true);
  } else {
    send_state(to);
  }
}

void AllReduceMachine::promise(Attempt attempt) {
  Current& c = *current_;
  if (attempt <= c.promised) return;
  c.promised = attempt;
  c.promised_at = now_;
  c.run.reset();
  c.want.reset();  // what a dead leader still delivers must not undo what we now report
  if (c.lead && owner(attempt) != self_) c.lead.reset();
  std::erase_if(early_, [&](const auto& entry) { return entry.second.attempt < attempt; });
}

void AllReduceMachine::send_state(Member to) {
  const Current& c = *current_;
  Members members = c.held.members;
  if (c.held.attempt == 0) {
    members.clear();
    for (Member m = 0; m < peers_.size(); ++m) {
      if (!is_reachable(m)) members.push_back(m);
    }
  }
  send(to, Kind::kState, c.at, c.promised, c.held.attempt, std::move(members));
}

void AllReduceMachine::join(Attempt attempt, Members members) {
  Current& c = *current_;
  c.joined = attempt;
  const std::size_t count = members.size();
  const auto index = static_cast<std::size_t>(std::ranges::find(members, self_) - members.begin());
  const Shape shape = choose_shape(options_.shape, count, c.input.values.size());
  c.run = Run{std::move(members), Reduction(shape, index, count, c.input)};
  std::vector<Reduction::Outgoing> out;
  c.run->reduction.start(out);
  emit(out);
  take_early();
  after_progress();
}

void AllReduceMachine::emit(std::vector<Reduction::Outgoing>& out) {
  for (Reduction::Outgoing& piece : out) {
    actions_.push_back(SendPiece{current_->run->members[piece.to], current_->at,
                                 static_cast<std::uint32_t>(current_->joined), piece.place,
                                 std::move(piece.floats)});
  }
}

void AllReduceMachine::after_progress() {
  Current& c = *current_;
  if (!c.run->reduction.done()) return;
  c.held = {c.joined, std::move(c.run->members), c.run->reduction.mean()};
  c.run.reset();
  if (owner(c.joined) == self_) {
    check_done();
  } else {
    send(owner(c.joined), Kind::kDone, c.at, c.joined);
  }
}

// A neighbour may hear of an attempt before us. Its pieces of the first half of a ring, or its own
// up the tree, are at most d floats; anything beyond is not of the protocol.
void AllReduceMachine::hold_early(PieceReceived& piece) {
  std::size_t held = piece.floats.values.size();
  for (const auto& [key, early] : early_) {
    if (key.first == piece.from) held += early.floats.values.size();
  }
  if (held > current_->input.values.size() || piece.floats.values.empty()) return;
  early_.try_emplace({piece.from, piece.place}, Early{piece.attempt, std::move(piece.floats)});
}

void AllReduceMachine::take_early() {
  Current& c = *current_;
  std::vector<Reduction::Outgoing> out;
  auto early = std::exchange(early_, {});
  for (const auto& [key, piece] : early) {  // in order of step for each sender
    const auto at = std::ranges::find(c.run->members, key.first);
    if (at == c.run->members.end() || piece.attempt != c.joined) continue;
    const auto from = static_cast<std::size_t>(at - c.run->members.begin());
    if (c.run->reduction.take(from, key.second, piece.floats, out)) emit(out);
    out.clear();
  }
}

void AllReduceMachine::want(Want want) {
  send(want.from, Kind::kWant, current_->at, want.attempt);
  current_->want = std::move(want);
}

void AllReduceMachine::take_result(const Floats& floats) {
  Current& c = *current_;
  Want want = std::move(*c.want);
  c.want.reset();
  c.run.reset();
  Mean mean{want.attempt, std::move(want.members), floats};
  if (want.purpose == Want::For::kFinish) return finish(std::move(mean));
  c.held = std::move(mean);
  if (want.purpose == Want::For::kLead) return let_stand(want.attempt);
  send(want.from, Kind::kDone, c.at, c.joined);
}

void AllReduceMachine::finish(Mean mean) {
  const Progress at = current_->at;
  last_ = Last{at, std::move(mean), std::nullopt};
  if (current_->lead) last_->first_at = current_->first_at;
  // First the notes: whoever waits for us does not wait for what we do with the mean.
  for (Member m = 0; m < peers_.size(); ++m) {
    if (waits(m)) send_last(m);
  }
  current_.reset();
  early_.clear();
  const Mean& result = last_->mean;
  next_ = after(at, result.members);
  if (2 * result.members.size() > peers_.size()) pace_.ended(at.exchange, now_);
  const bool without_us = !std::ranges::binary_search(result.members, self_);
  if (without_us && !is_left_out_) {
    say(LogLevel::kWarning,
        fmt::format("exchange {} ended without us, in attempt {}; we take its mean", at.exchange,
                    result.attempt));
  }
  is_left_out_ = without_us;
  further_.clear();
  say_who_is_missing(at.exchange, result.members);
  actions_.push_back(Finished{at, next_, static_cast<std::uint32_t>(result.attempt), result.members,
                              result.floats});
}

// --- others are further --------------------------------------------------------------------------

void AllReduceMachine::hear_of_further(Member from, Progress next, Members by) {
  if (next <= current_->at) return;
  Peer& peer = peers_[from];
  peer.ahead = next;
  peer.ahead_by = std::move(by);
  look_ahead();
}

// To where the furthest are whom we can believe. A member's word alone moves nobody beyond what the
// time explains that we took for ours.
bool AllReduceMachine::follow_the_further() {
  if (now_ < current_->stays_until) return false;
  Members witnesses;
  for (Member m = 0; m < peers_.size(); ++m) {
    const Peer& peer = peers_[m];
    if (peer.reachable && peer.ahead && *peer.ahead > current_->at) witnesses.push_back(m);
  }
  std::ranges::stable_sort(witnesses,
                           [&](Member a, Member b) { return *peers_[a].ahead > *peers_[b].ahead; });
  for (std::size_t i = 0; i < witnesses.size(); ++i) {
    const Peer& peer = peers_[witnesses[i]];
    if (!is_believed(*peer.ahead, i + 1)) continue;
    fall_behind(*peer.ahead, peer.ahead_by);
    return true;
  }
  return false;
}

void AllReduceMachine::look_ahead() {
  if (!current_ || follow_the_further()) return;
  const bool somebody = std::ranges::any_of(
      peers_, [](const Peer& peer) { return peer.reachable && peer.ahead && !peer.elsewhere; });
  if (somebody) sound_others();
}

// That many members say that they, or others whom they know, have come at least that far.
bool AllReduceMachine::is_believed(Progress next, std::size_t witnesses) const {
  if (2 * witnesses > peers_.size()) return true;
  const auto others = std::ranges::count_if(peers_, &Peer::reachable) - 1;  // not ourselves
  if (witnesses >= std::min(static_cast<std::size_t>(others), gossip::AheadBound::kWitnesses)) {
    return is_explainable(next);
  }
  // Who is new here has nothing to hold against it but what the others say.
  const bool nobody_else = current_->sounded_at && now_ >= *current_->sounded_at + options_.repeat;
  const auto most = pace_.alone(now_);
  return most ? next.exchange <= *most : nobody_else;
}

bool AllReduceMachine::is_explainable(Progress at) const {
  const auto most = pace_.confirmed(now_);
  return !most || at.exchange <= *most;
}

// Whoever is further answers where it is.
void AllReduceMachine::sound_others() {
  if (!current_->sounded_at) current_->sounded_at = now_;
  for (Member m = 0; m < peers_.size(); ++m) {
    Peer& peer = peers_[m];
    if (m == self_ || !peer.reachable || peer.ahead || std::exchange(peer.sounded, true)) continue;
    send_state(m);
  }
}

// Whose word is not believed though all have been asked neither leads nor is waited for.
void AllReduceMachine::go_on_without_strays() {
  Current& c = *current_;
  if (!c.sounded_at || now_ < *c.sounded_at + options_.repeat) return;
  for (Peer& peer : peers_) peer.elsewhere = peer.ahead && *peer.ahead > c.at;
}

// What it said of those who are further is over, or taken back.
void AllReduceMachine::be_with_us(Peer& peer) {
  peer.ahead.reset();
  peer.elsewhere = false;
}

// What we are at is over. Whoever waits for us there has to know as well, and whoever does so in
// what we now pass over.
void AllReduceMachine::fall_behind(Progress next, Members by) {
  if (!std::exchange(is_left_out_, true)) {
    say(LogLevel::kWarning,
        fmt::format("{} have come to exchange {}{}; we are still at {} and have to copy a model",
                    list_some(by, kNamedMax, [this](Member m) { return names_[m]; }), next.exchange,
                    next.backed > current_->at.backed ? " with more than half of the members" : "",
                    current_->at.exchange));
  }
  for (Member m = 0; m < peers_.size(); ++m) {
    const Peer& peer = peers_[m];
    if (waits(m)) {
      send(m, Kind::kCommit, {next.backed, next.exchange - 1}, 0, 0, by);
    } else if (peer.begun && *peer.begun >= next_ && *peer.begun < next && !peer.declined) {
      decline(m);
    }
  }
  next_ = next;
  further_ = by;
  current_.reset();
  early_.clear();
  actions_.push_back(Behind{next, std::move(by)});
}

// Whoever has begun what we have not must not wait for us to lead.
void AllReduceMachine::decline(Member member) {
  peers_[member].declined = true;
  send(member, Kind::kNotYet, *peers_[member].begun, 0);
}

bool AllReduceMachine::declined(Progress at) const {
  return std::ranges::any_of(peers_, [&](const Peer& p) { return p.declined && p.begun == at; });
}

// Views may have differed when something was asked: ask again. What looks stuck may only be slow,
// so each attempt that we undo leaves the next one twice the time.
void AllReduceMachine::repeat() {
  current_->repeat_at = now_ + options_.repeat;
  for (Peer& peer : peers_) peer.sounded = false;
  look_ahead();
  if (!current_) return;
  go_on_without_strays();
  Current& c = *current_;
  const Duration patience = options_.repeat * (1U << std::min(c.renewals, kDoublingsMax));
  if (now_ >= c.promised_at + patience && is_undone()) {
    ++c.renewals;
    if (c.lead) promise(highest_promise());
    return report();
  }
  if (!c.lead) {
    if (c.reported_to != self_) send_state(c.reported_to);
  } else if (c.lead->stage == Lead::Stage::kRunning) {
    for (Member m : c.lead->awaited) {
      if (!peers_[m].done) send(m, Kind::kAsk, c.at, c.lead->attempt);
    }
  } else {
    for (Peer& peer : peers_) peer.asked = 0;
  }
}

// What comes after `at` has ended with the mean of these. Of two members neither is a majority, and
// none gives way.
Progress AllReduceMachine::after(Progress at, const Members& members) const {
  const bool backed = peers_.size() <= 2 || 2 * members.size() > peers_.size();
  return {backed ? at.exchange + 1 : at.backed, at.exchange + 1};
}

// What we have ended, or passed over, lies before this.
Progress AllReduceMachine::open() const { return current_ ? current_->at : next_; }

// They have ended one that we have not begun: not the one after ours, whatever its mean will be of.
bool AllReduceMachine::is_beyond_next(Progress at) const {
  return at > next_ && !(current_ && may_follow(at));
}

// Requires: current_. Ours may end with a mean of a majority or of fewer.
bool AllReduceMachine::may_follow(Progress at) const {
  const Progress& ours = current_->at;
  return at.exchange == ours.exchange + 1 && (at.backed == at.exchange || at.backed == ours.backed);
}

// We are further, by more than one or by the support of others, without having ended that or any
// later one here: whoever asks has no mean to expect. Of the one just before, others may hold the
// mean.
bool AllReduceMachine::is_long_over(Progress at) const {
  const Progress ours = open();
  if (ours.exchange < 2 || at >= ours) return false;
  const bool may_precede = at.exchange + 1 == ours.exchange &&
                           (ours.backed == ours.exchange || ours.backed == at.backed);
  return !may_precede;
}

// Attempt 0: there is no mean to be had here, a model has to be copied of those who are named.
void AllReduceMachine::say_it_is_over(Member to) {
  Members further = further_;  // we may have copied nothing yet
  if (further.empty()) {
    for (Member m = 0; m < peers_.size(); ++m) {
      const Peer& peer = peers_[m];
      if (m == self_ || (peer.reachable && peer.begun && *peer.begun >= open()))
        further.push_back(m);
    }
  }
  send(to, Kind::kCommit, {open().backed, open().exchange - 1}, 0, 0, std::move(further));
}

// Not more often than every so often, whoever falls out and returns in between.
void AllReduceMachine::say_who_is_missing(Exchange exchange, const Members& members) {
  Members missing;
  for (Member m = 0; m < peers_.size(); ++m) {
    if (m != self_ && !std::ranges::binary_search(members, m)) missing.push_back(m);
  }
  if (missing == missing_ || (missing_said_at_ && now_ < *missing_said_at_ + kSayEvery)) return;
  missing_ = std::move(missing);
  missing_said_at_ = now_;
  if (missing_.empty()) {
    return say(LogLevel::kInfo, fmt::format("exchange {}: all members take part again", exchange));
  }
  const std::string who = list_some(missing_, kNamedMax, [this](Member m) {
    return fmt::format("{} ({})", names_[m],
                       is_reachable(m) ? "late, or not in reach of all" : "not in reach");
  });
  say(LogLevel::kWarning, fmt::format("exchange {} ended without {}", exchange, who));
}

// All else is sent to those who have been heard.
void AllReduceMachine::put_again(Member member) {
  if (!current_) return;
  if (current_->lead) {
    peers_[member].asked = 0;
  } else if (current_->reported_to == member) {
    send_state(member);
  }
}

// Nothing can come of what we are at, as far as we know.
bool AllReduceMachine::is_undone() const {
  const Current& c = *current_;
  // Someone follows another leader: lead beyond its attempt, or follow it too.
  if (c.lead) return highest_promise() > c.promised;
  const bool stale = c.joined == 0 && leader() != c.reported_to;
  if (stale || !is_reachable(c.reported_to) || c.reported_to == self_) return true;
  if (peers_[c.reported_to].elsewhere) return true;  // also where we took part in its attempt
  // Whom we follow follows us: one of the two has to lead.
  const Peer& followed = peers_[c.reported_to];
  const bool follows_us =
      followed.begun == c.at && followed.attempt != 0 && owner(followed.attempt) == self_;
  return follows_us && leader() == self_;
}

AllReduceMachine::Attempt AllReduceMachine::highest_promise() const {
  Attempt highest = current_->promised;
  for (Member m = 0; m < peers_.size(); ++m) {
    if (waits(m) && is_plausible(peers_[m].attempt)) {
      highest = std::max(highest, peers_[m].attempt);
    }
  }
  return highest;
}

// --- small things --------------------------------------------------------------------------------

bool AllReduceMachine::is_overdue(Member member) const {
  const Peer& peer = peers_[member];
  return peer.begun && *peer.begun >= next_ && !peer.declined &&
         now_ >= peer.begun_at + arrivals_.duration();
}

bool AllReduceMachine::is_plausible(Attempt attempt) const {
  return attempt <= std::min(current_->promised + kAttemptsAhead * peers_.size(), kAttemptMax);
}

bool AllReduceMachine::waits(Member member) const {
  return member != self_ && is_reachable(member) && peers_[member].begun == current_->at;
}

Member AllReduceMachine::owner(Attempt attempt) const {
  return static_cast<Member>((attempt - 1) % peers_.size());
}

bool AllReduceMachine::are_members(const Members& members) const {
  return !members.empty() && members.back() < peers_.size() &&
         std::ranges::adjacent_find(members, std::greater_equal<>()) == members.end();
}

void AllReduceMachine::send(Member to, Kind kind, Progress at, Attempt attempt, Attempt held,
                            Members members) {
  STARLING_CHECK(attempt <= std::numeric_limits<std::uint32_t>::max());
  actions_.push_back(
      SendNote{to, protocol::ReduceNote{.kind = kind,
                                        .epoch = epoch_,
                                        .exchange = at.exchange,
                                        .attempt = static_cast<std::uint32_t>(attempt),
                                        .held = static_cast<std::uint32_t>(held),
                                        .members = std::move(members),
                                        .backed = at.backed}});
}

void AllReduceMachine::send_last(Member to) {
  send(to, Kind::kCommit, last_->at, last_->mean.attempt, 0, last_->mean.members);
}

void AllReduceMachine::say(LogLevel level, std::string line) {
  actions_.push_back(Say{level, std::move(line)});
}

}  // namespace starling::collective

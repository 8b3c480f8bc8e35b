// SPDX-License-Identifier: Apache-2.0
// How a member gets a mean that others hold: one that stands, or one that an exchange has ended
// with. It is named by its digest, and what comes is held against it.
#include <fmt/format.h>

#include <algorithm>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

// More than any member needs in one exchange: a bound on what one may make us send.
constexpr unsigned kWantsMax = 16;
// Another that has the mean is asked too after this part of a piece's deadline.
constexpr int kSourceParts = 3;

}  // namespace

void AllReduceMachine::fetch(reduce::Standing standing) {
  current_->run.reset();
  current_->fetch = std::move(standing);
  current_->wait(now_);
  if (current_->false_donors.contains(current_->fetch->holder)) return give_up_source();
  ask_holder();
}

void AllReduceMachine::ask_holder() {
  const auto& [mean, holder] = *current_->fetch;
  send(holder, current_->at, mean.attempt, reduce::Want{mean.sha256});
}

void AllReduceMachine::give_up_source() {
  current_->blame = Blame{current_->fetch->holder, 1};
  stop_waiting();
}

// A mean that we asked for. Who sends another, or one that cannot be of this run, is named, and not
// asked again in this exchange.
void AllReduceMachine::receive_mean(PieceReceived& piece) {
  Participation& c = *current_;
  const bool for_end = c.search && c.search->was_asked(piece.from) &&
                       !c.false_donors.contains(piece.from) &&
                       c.search->commit().attempt == piece.attempt;
  const bool for_attempt =
      c.fetch && c.fetch->holder == piece.from && c.fetch->mean.attempt == piece.attempt;
  if (piece.floats.values.size() != c.input.values.size() || (!for_end && !for_attempt)) return;
  const double most = c.distance_max * c.distance_max;
  const bool is_near = squared_distance(piece.floats.values, c.input.values) <= most;
  // Of numbers that cannot be it does not matter whether they are those that were named.
  const Sha256Digest digest = is_near ? sha256(as_bytes(piece.floats.values)) : Sha256Digest{};
  if (for_end && is_near && digest == c.search->commit().sha256) {
    records_->gave(names_[piece.from]);
    return finish(c.search->commit(), piece.floats);
  }
  if (for_attempt && is_near && digest == c.fetch->mean.sha256) {
    Participation::Mean mean{std::move(c.fetch->mean), piece.floats};
    c.fetch.reset();
    c.wait(now_);
    return accept(std::move(mean));
  }
  say_seldom(
      "false mean: " + names_[piece.from],
      fmt::format("{} sends {} the mean of exchange {}, attempt {}, that it was asked for: it is "
                  "not asked again",
                  names_[piece.from],
                  is_near ? "other numbers than" : "numbers too far from this peer's model as",
                  c.at.exchange, piece.attempt));
  c.false_donors.insert(piece.from);
  if (for_attempt) give_up_source();
  if (for_end && c.search->asked() == piece.from) try_next_source();
}

// In a group: whether the gatherer of this commit may not hear us. It ended the exchange without us
// although we had registered with it, or although it was in a list of ours. For the second only its
// own word counts.
bool AllReduceMachine::is_unheard_by_gatherer(Member teller, const Commit& commit) const {
  const Member gatherer = owner(commit.attempt);
  const bool was_there = std::ranges::binary_search(commit.members, self_);
  if (!options_.any_mean || gatherer == self_ || was_there) return false;
  const Participation& c = *current_;
  if (c.promised == commit.attempt && c.joined < commit.attempt) return true;
  return teller == gatherer && std::ranges::binary_search(history_.sources(commit.at), gatherer);
}

// In a group: these have ended the exchange and cannot give us their mean, so we wait for the other
// members alone.
void AllReduceMachine::go_on_without(const Members& ended) {
  const auto has_ended = [&](Member m) {
    return m != self_ && std::ranges::binary_search(ended, m);
  };
  std::erase_if(expected_, has_ended);
  if (asked_for_ && has_ended(owner(asked_for_->attempt))) asked_for_.reset();
  if (!current_->search) settled_.reset();
  if (current_->promised == 0) {  // about to begin
    if (has_ended(gatherer_)) gatherer_ = gatherer_after(gatherer_);
    return;
  }
  const Member gatherer = current_->gatherer();
  if (gatherer == self_) {
    if (!gather_) take_part_in(next_attempt(self_));
  } else if (has_ended(gatherer)) {
    take_part_in(next_attempt(gatherer_after(gatherer)));
  }
}

// The holder has the mean, and so do its members once they have finished.
void AllReduceMachine::look_for(Commit commit, Member teller) {
  std::optional<MeanSearch>& search = current_->search;
  if (is_unheard_by_gatherer(teller, commit)) records_->gave_nothing(names_[owner(commit.attempt)]);
  const auto may_have_it = [this](Member m) {
    return m != self_ && !current_->false_donors.contains(m);
  };
  if (!search || search->commit().sha256 != commit.sha256) {
    Members sources = commit.members;
    std::erase(sources, commit.holder);
    sources.insert(sources.begin(), commit.holder);
    std::erase_if(sources, [&](Member m) { return !may_have_it(m); });
    if (sources.empty()) return;
    const auto gives = [this](Member m) { return records_->gives(names_[m]); };
    if (options_.any_mean && std::ranges::none_of(sources, gives)) {
      return go_on_without(commit.members);
    }
    // Last those that we do not hear, or that may not hear us. Who gave none may have been ahead.
    std::ranges::stable_sort(sources, {}, [&](Member m) {
      return std::pair(liveness_.is_lost(m, now_) || liveness_.owes_answer(m), !gives(m));
    });
    search.emplace(std::move(commit), std::move(sources), now_);
    ask_source();
  } else if (may_have_it(commit.holder) && search->add(commit.holder, 2 * names_.size())) {
    if (now_ >= search->asked_at() + piece_wait() / kSourceParts) give_up_donor();
  }
}

// For the means of commits that came before we began. Returns whether one is our own, so that the
// exchange has ended.
bool AllReduceMachine::look_for_told() {
  const Progress at = current_->at;
  const auto committed = std::exchange(committed_, {});
  auto told = std::exchange(told_, {});
  if (committed && committed->at == at) {
    if (gathered_) arrivals_.learn(now_ - gathered_->from);
    look_for(*committed, owner(committed->attempt));
    if (settled_ == at) return true;
  }
  for (auto& [teller, commit] : told) {
    if (commit.at != at) continue;
    current_->tellers.try_emplace(teller, commit.sha256);
    if (!current_->search) look_for(std::move(commit), teller);
  }
  return false;
}

void AllReduceMachine::ask_source() {
  const Commit& commit = current_->search->commit();
  send(current_->search->asked(), commit.at, commit.attempt, reduce::Want{commit.sha256});
}

// It was asked, and has sent nothing yet. What it may send still counts.
void AllReduceMachine::give_up_donor() {
  records_->gave_nothing(names_[current_->search->asked()]);
  try_next_source();
}

void AllReduceMachine::try_next_source() {
  Participation& c = *current_;
  if (c.search->ask_next(c.false_donors, now_)) return ask_source();
  const Commit& commit = c.search->commit();
  if (settled_ == commit.at) c.blame = Blame{commit.holder, 1};  // not hearsay
  c.search.reset();                                              // nobody has it
  settled_.reset();
  if (!c.waiting_for() && !gather_) take_part_in(next_attempt(gatherer_after(self_)));
}

std::optional<TimePoint> AllReduceMachine::source_gives_up_at() const {
  if (!current_ || !current_->search) return std::nullopt;
  const MeanSearch& search = *current_->search;
  const TimePoint until = search.asked_at() + patience().stretched(piece_wait());
  return liveness_.waits_until(search.asked(), search.asked_at(), until);
}

// It does not have the mean that we asked it for.
void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::NotYet&) {
  if (!current_ || at != current_->at) return;
  const Participation& c = *current_;
  if (c.search && c.search->asked() == from && c.search->commit().attempt == attempt) {
    try_next_source();
  } else if (c.fetch && c.fetch->holder == from && c.fetch->mean.attempt == attempt) {
    give_up_source();
  }
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Want& want) {
  const Floats* mean = nullptr;
  if (const EndedExchange* const ended = ended_with(at)) {
    expected_.insert(from);
    if (want.sha256 != ended->commit.sha256) return send_commit(from, ended->commit);
    mean = &ended->mean;
  } else if (current_ && at == current_->at) {
    if (current_->holds(want.sha256)) mean = &current_->held.floats;
  } else if (answer_if_over(from, at, attempt, reduce::NotYet{})) {
    return;
  }
  if (mean == nullptr) return send(from, at, attempt, reduce::NotYet{});
  if (wants_served_[from] == kWantsMax) return;
  ++wants_served_[from];
  actions_.emplace_back(SendPiece{from, at, attempt, place_of(Phase::kResult, 0), *mean});
}

}  // namespace starling::collective

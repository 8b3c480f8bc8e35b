// SPDX-License-Identifier: Apache-2.0
// A member's side of an attempt: it takes part in what its gatherer lists, and reduces.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

// Whether its gatherer lists these in the attempt at hand.
bool AllReduceMachine::is_awaited(Member from, Progress at, Attempt attempt,
                                  const Members& members) const {
  if (!current_ || at != current_->at || !are_members(members)) return false;
  return attempt == current_->promised && attempt > current_->joined && owner(attempt) == from;
}

// Its list has come. Whom we blamed as we registered counts no more.
void AllReduceMachine::begin_attempt(Attempt attempt, bool weak, const Members& members) {
  Participation& c = *current_;
  c.wait(now_);
  c.weak = weak || !is_quorum(members.size());
  records_->listed(names_[owner(attempt)]);
  c.joined = attempt;
  c.joined_at = c.charged_until = now_;
  c.waited.reset();
  c.blame.reset();
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::List& list) {
  if (!is_awaited(from, at, attempt, list.members)) return;
  Participation& c = *current_;
  // It was the cause for which all waited, as the gatherer found.
  if (c.blame && list.apart == c.blame->member) {
    if (!c.blame->wrong) liveness_.call_silent(c.blame->member, now_);
    charge(self_, *c.blame, c.charged_until);
  }
  // How late the last one was, as far as a member sees it that may be the next gatherer.
  if (from != self_ && c.joined == 0) {
    const Duration most = Gathering::lateness_max(view(), c.begun_at, c.begun_at);
    arrivals_.learn(std::min(now_ - c.begun_at, most));
  }
  begin_attempt(attempt, list.weak, list.members);
  if (std::ranges::binary_search(list.members, self_)) join(std::move(list.members));
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt,
                               reduce::Standing& standing) {
  auto& [mean, holder] = standing;
  if (!is_awaited(from, at, attempt, mean.members) || holder >= names_.size()) return;
  // Others have got all that they waited for.
  const auto& blame = current_->blame;
  if (blame && !blame->wrong) liveness_.call_silent(blame->member, now_);
  begin_attempt(attempt, mean.weak, mean.members);
  if (current_->holds(mean.sha256)) return accept({std::move(mean), current_->held.floats});
  if (holder != self_) fetch(std::move(standing));
}

void AllReduceMachine::join(Members members) {
  Participation& c = *current_;
  const std::size_t count = members.size();
  const auto index = static_cast<std::size_t>(std::ranges::find(members, self_) - members.begin());
  const Shape shape = choose_shape(options_.shape, count, c.input.values.size());
  c.run = Participation::Run{std::move(members),
                             Reduction(shape, index, count, c.input, c.distance_max)};
  std::vector<Reduction::Outgoing> out;
  c.run->reduction.start(out);
  emit(out);
  for (const auto& [key, piece] : c.early.take()) {
    const auto& [from, place] = key;
    if (reduce(from, place, piece) == Reduction::Taken::kWrong) return refuse_numbers(from);
  }
  after_progress();
}

Reduction::Taken AllReduceMachine::reduce(Member from, std::uint64_t place, const Floats& piece) {
  Participation::Run& run = *current_->run;
  const auto at = std::ranges::find(run.members, from);
  if (at == run.members.end()) return Reduction::Taken::kNotNow;
  std::vector<Reduction::Outgoing> out;
  const auto index = static_cast<std::size_t>(at - run.members.begin());
  const auto taken = run.reduction.take(index, place, piece, out);
  emit(out);
  return taken;
}

// At once: there is nothing to wait for. A gatherer that lists its own wrong numbers would do so
// again.
void AllReduceMachine::refuse_numbers(Member from) {
  Participation& c = *current_;
  say_seldom(
      "wrong: " + names_[from],
      fmt::format("{} sent numbers in exchange {} that are too far from this peer's model to be "
                  "of this run: not used, and the exchange begins again",
                  names_[from], c.at.exchange));
  c.blame = Blame{.member = from, .pieces = 1, .wrong = true};
  const Member gatherer = c.gatherer();
  const bool is_no_use = from == gatherer || ++c.refused[gatherer] > GatherHistory::kListsMax;
  if (from == gatherer) charge(self_, *c.blame, now_);
  const Attempt next = next_attempt(is_no_use ? gatherer_after(gatherer) : gatherer);
  take_part_in(std::max(next, c.bounds.later()));
}

void AllReduceMachine::emit(std::vector<Reduction::Outgoing>& out) {
  Participation& c = *current_;
  for (Reduction::Outgoing& piece : out) {
    c.sent.push_back(
        {c.run->members[piece.to], c.at, c.joined, piece.place, std::move(piece.floats)});
    actions_.emplace_back(c.sent.back());
  }
}

void AllReduceMachine::after_progress() {
  Participation& c = *current_;
  if (!c.run->reduction.done()) return;
  Participation::Mean mean{{.members = std::move(c.run->members)}, c.run->reduction.mean()};
  mean.sha256 = sha256(as_bytes(mean.floats.values));
  c.run.reset();
  accept(std::move(mean));
}

// In the attempt at hand.
void AllReduceMachine::accept(Participation::Mean mean) {
  Participation& c = *current_;
  mean.attempt = c.joined;
  mean.weak = c.weak;
  c.held = std::move(mean);
  c.held_at = now_;
  if (owner(c.joined) != self_) return send_done();
  note_done(self_, c.done());
}

void AllReduceMachine::send_done() {
  const Participation& c = *current_;
  send(owner(c.joined), c.at, c.joined, c.done());
}

}  // namespace starling::collective

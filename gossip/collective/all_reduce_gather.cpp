// SPDX-License-Identifier: Apache-2.0
// The gatherer's side of the machine: it hears who is there, names those who reduce, and commits.
// It need not have begun the exchange itself.
#include <fmt/format.h>

#include <algorithm>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

// --- registrations -------------------------------------------------------------------------------

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt,
                               reduce::Register& registration) {
  records_->came(names_[self_], names_[from], now_);
  if (answer_if_over(from, at, attempt, reduce::Wait{})) return;
  const bool is_for_us = is_plausible(from, attempt) && owner(attempt) == self_;
  if (at > open()) {  // we are late: another is to gather
    if (is_for_us) send(from, at, attempt_after(attempt, gatherer_after(self_)), reduce::Ask{});
    return hear_of_later(from, at);
  }
  if (!is_for_us) return;
  if (!history_.has_barred(at)) bar(at);
  auto& [held, lost, blame, fresh] = registration;
  if (!lost.empty() && !are_members(lost)) return;
  if (held && (!are_members(held->members) || held->attempt > attempt)) return;  // cannot be
  if (blame && (blame->member == from || blame->member >= names_.size())) blame.reset();
  const auto accused = blame ? std::optional(blame->member) : std::nullopt;
  if (history_.is_left_out(at, from)) return send(from, at, 0, reduce::Wait{});
  if (current_ && attempt < current_->promised) {
    return send(from, at, current_->promised, reduce::Ask{});
  }
  if (history_.was_sent(at, attempt) && (!gather_ || gather_->attempt() != attempt)) {
    return send(from, at, next_attempt(self_), reduce::Ask{});
  }
  if (!moves_to(from, at, attempt, accused)) return;
  Gathering& gather = open_gather(at, attempt);
  if (gather.attempt() > attempt) return send(from, at, gather.attempt(), reduce::Ask{});
  if (const SentList* const list = gather.list()) {
    if (list->has(from)) {
      const Registration& its = gather.registered().of(from);
      if (!fresh || its.fresh) return send(from, at, attempt, list->note(from, its));
      charge_leaving(from, accused);
      return begin_again(self_);
    }
    if (!gather.registered().contains(from)) {
      arrivals_.learn(std::min(now_ - gather.first_at(), gather.lateness_max(view())));
    }
  }
  if (held && !is_quorum(held->members.size())) held->weak = true;
  gather.add(from, std::move(registration), now_);
}

// Leaves for it what we gather or take part in below this attempt. False: not for `from`.
bool AllReduceMachine::moves_to(Member from, Progress at, Attempt attempt,
                                std::optional<Member> accused) {
  const bool leaves_list = gather_ && gather_->list() != nullptr && attempt > gather_->attempt();
  const bool moves_us = current_ && attempt > current_->promised;
  // Those who reduce can end without it.
  const bool may_move = leaves_list ? is_awaited_here(from)
                                    : !moves_us || !current_->run || may_leave_for(from, attempt);
  if (!may_move) {
    put_off(from, attempt);
    send(from, at, 0, reduce::Wait{});
    return false;
  }
  if (moves_us && !current_->bounds.follows(from, attempt, current_->promised)) return false;
  if (leaves_list) {
    charge_leaving(from, accused);
    if (history_.is_left_out(at, from)) {
      begin_again(self_);
      return false;
    }
  }
  if (moves_us) follow(from, attempt);
  return true;
}

// Whether what is gathered here ends without this member.
bool AllReduceMachine::is_awaited_here(Member member) const {
  const SentList* const list = gather_ ? gather_->list() : nullptr;
  return list != nullptr && list->awaited.contains(member);
}

// In place of the attempt that is gathered here, whatever came of it.
void AllReduceMachine::begin_again(Member gatherer) {
  const Attempt next = attempt_after(gather_->attempt(), gatherer);
  if (current_) {
    take_part_in(next);
  } else {
    drop_gather(next);
  }
}

Gathering& AllReduceMachine::open_gather(Progress at, Attempt attempt) {
  if (gather_ && gather_->at() == at && gather_->attempt() >= attempt) return *gather_;
  if (gather_) drop_gather(attempt);
  gather_.emplace(at, attempt, Registrations(majority_, self_, memory_ == Memory::kNone), view());
  return *gather_;
}

void AllReduceMachine::drop_gather(Attempt instead) {
  for (const auto& [member, registration] : gather_->registered().all()) {
    if (member != self_) send(member, gather_->at(), instead, reduce::Ask{});
  }
  gather_.reset();
}

void AllReduceMachine::ask_all() {
  bar(gather_->at());
  for (const Member m : gather_->ask_all(view())) {
    send(m, gather_->at(), gather_->attempt(), reduce::Ask{});
  }
}

GatherView AllReduceMachine::view() const {
  return {.options = options_,
          .liveness = liveness_,
          .history = history_,
          .expected = expected_,
          .ended_at = ended_at_,
          .arrivals = arrivals_.duration(),
          .patience = patience(),
          .awaits_mean = current_ && current_->search,
          .now = now_};
}

void AllReduceMachine::close() {
  const Gathering& gather = *gather_;
  if (gather.registered().size() == 0) return;
  if (gather.asks_first(view())) return ask_all();
  if (options_.any_mean && gather.asked_at()) call_unheard_silent();
  if (gather.may_go_on(view())) return decide();
  if (gather.asked_at()) {
    for (const Member m : gather.registered().missing()) {
      if (liveness_.heard_at(m) < *gather.asked_at()) liveness_.call_silent(m, now_);
    }
    // Somebody else might gather more.
    const auto other = gather.hears_more(view());
    const bool may_pass = current_ && !current_->search;
    if (other && may_pass && current_->passed_on < Gathering::kAsksMax) {
      ++current_->passed_on;
      return begin_again(*other);
    }
  }
  ask_all();
}

// Members that were asked, and of which nothing was heard since the first registration.
void AllReduceMachine::call_unheard_silent() {
  const Gathering& gather = *gather_;
  for (const Member m : gather.registered().missing()) {
    const bool is_heard = liveness_.heard_at(m) > gather.first_at();
    if (!is_heard && liveness_.is_met(m)) liveness_.call_silent(m, now_);
  }
}

// --- the run -------------------------------------------------------------------------------------

// A mean that may count as backed may have been committed by somebody who is gone: it stands, and
// is committed when those who hold it back it, or all who are here. Those who could not have made
// it give it no new attempt: that would let it stand before one that was chosen meanwhile.
void AllReduceMachine::decide() {
  const Gathering& gather = *gather_;
  if (const auto other = gather.registered().better_gatherer()) return begin_again(*other);
  if (!gather.asked_at() && gather.is_complete(view())) arrivals_.learn(now_ - gather.first_at());
  charge_waits();
  if (const NamedMean* const standing = gather.registered().standing()) {
    take_over(*standing);
  } else {
    reduce_anew();
  }
}

void AllReduceMachine::take_over(NamedMean standing) {
  const Gathering& gather = *gather_;
  const Registrations& registered = gather.registered();
  const Members held_by = registered.holders(standing.sha256);
  if (exclude_silent_holders(held_by)) return close();
  history_.sent(gather.at(), gather.attempt(), held_by);
  if (!standing.weak && !registered.backs(registered.members())) {
    return end_with({.at = gather.at(),
                     .attempt = standing.attempt,
                     .members = std::move(standing.members),
                     .sha256 = standing.sha256,
                     .support = support_of(held_by.size(), true),
                     .holder = held_by.front()});
  }
  say(LogLevel::kInfo,
      fmt::format("exchange {}: the mean of attempt {} over {} members stands",
                  gather.at().exchange, standing.attempt, standing.members.size()));
  send_lists({.to = registered.backs(held_by) ? held_by : registered.members(),
              .mean = std::move(standing),
              .holders = held_by});
}

void AllReduceMachine::reduce_anew() {
  const Gathering& gather = *gather_;
  const Registrations& registered = gather.registered();
  SentList list{.to = registered.members()};
  const auto cause = registered.find_cause(history_.sources(gather.at()));
  if (cause && registered.contains(cause->second.member)) {
    const auto& [by, of] = list.apart.emplace(cause->first, cause->second.member);
    const std::string_view why =
        cause->second.wrong ? "received wrong numbers from" : "waited without an answer for";
    say_seldom("apart: " + names_[by] + ", " + names_[of],
               fmt::format("exchange {}: {} {} {}, and they are kept apart", gather.at().exchange,
                           names_[by], why, names_[of]));
    if (!history_.has_many_lists(gather.at())) {
      std::erase(list.to, cause_of(by, cause->second));
    } else {  // who accuses others each time may be the cause itself
      std::erase_if(list.to, [&](Member m) { return m != self_ && (m == by || m == of); });
      if (list.to.empty()) list.to = registered.members();
    }
  }
  list.to = registered.reducible(std::move(list.to), liveness_.lost(now_), list.apart);
  list.mean.members = list.to;
  history_.sent(gather.at(), gather.attempt(), list.to);
  send_lists(std::move(list));
}

void AllReduceMachine::send_lists(SentList sent) {
  const Progress at = gather_->at();
  const Attempt attempt = gather_->attempt();
  const SentList& list = gather_->set_list(std::move(sent), now_);
  const Registrations& registered = gather_->registered();
  for (const auto& [member, its] : registered.all()) {
    if (member != self_) send(member, at, attempt, list.note(member, its));
  }
  if (registered.contains(self_)) hear(self_, at, attempt, list.note(self_, registered.of(self_)));
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Done& done) {
  if (!gather_ || at != gather_->at() || attempt != gather_->attempt()) return;
  note_done(from, done);
}

void AllReduceMachine::note_done(Member member, const reduce::Done& done) {
  SentList* const list = gather_ ? gather_->list() : nullptr;
  if (list == nullptr || !list->awaited.contains(member)) return;
  const bool is_last = list->awaited.size() == 1 && list->is_any_done();
  if (is_last) list->last = {member, now_ - list->progress_at};
  list->awaited.erase(member);
  list->done[done.sha256].push_back(member);
  const auto is_possible = [&](const Waited& its) {
    return its.of < names_.size() &&
           std::chrono::milliseconds(its.milliseconds) <= now_ - list->sent_at;
  };
  const bool has_waited = done.waited && is_possible(*done.waited);
  if (is_last) charge_last(member, has_waited ? done.waited : std::nullopt);
  if (has_waited) {
    list->waits.emplace_back(member, *done.waited);
  }
  list->progress_at = now_;  // our own end too: the root of a tree has the mean first
  if (list->differs()) return settle_difference();
  if (!list->awaited.empty()) return;
  const auto there =
      std::ranges::find_if(list->to, [this](Member m) { return !liveness_.is_lost(m, now_); });
  end_with({gather_->at(), gather_->attempt(), list->mean.members, done.sha256,
            support_of(list->to.size(), list->weak),
            there == list->to.end() ? list->to.front() : *there});
}

void AllReduceMachine::tick_gather() {
  if (!gather_) return;
  for (const Member m : gather_->heartbeat(view())) send(m, gather_->at(), 0, reduce::Wait{});
  const SentList* const list = gather_->list();
  if (list == nullptr || now_ < gather_->run_ends_at(view())) return;
  if (list->is_any_done()) history_.set_overdue(list->awaited);
  if (list->stands() && history_.has_many_lists(gather_->at())) {
    for (const Member m : list->holders) {  // there is nothing that they have to wait for
      if (list->awaited.contains(m)) {
        exclude(m, "holds a mean, as it says, but does not go on");
      }
    }
  }
  for (const Member m : list->awaited) {
    const bool is_late = now_ >= list->progress_at + piece_wait() / 2;
    if (is_late && liveness_.heard_at(m) <= list->progress_at) liveness_.call_silent(m, now_);
  }
  if (!current_) return gather_.reset();
  try_again_with(self_);
}

}  // namespace starling::collective

// SPDX-License-Identifier: Apache-2.0
// Whom a gatherer leaves out of an exchange: who holds another mean than it should, or none, or has
// held up others for too long.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/list_some.h"
#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

constexpr int kChargedWaits = 4;  // for pieces, at most, each time

}  // namespace

// Who was in one reduction and says that it holds another mean: a liar, or one that a liar's pieces
// reached. Nothing of this attempt is committed; in the next one a mean that is held stands, and is
// named. Who holds another even then is left out, or who still differs after more lists.
void AllReduceMachine::settle_difference() {
  const SentList& list = *gather_->list();
  const Members others = list.others(self_);
  say_seldom(
      "another mean",
      fmt::format("exchange {}, attempt {}: {} ended with another mean than the others: one member "
                  "sends wrong numbers, and the exchange goes on with one mean",
                  gather_->at().exchange, gather_->attempt(),
                  list_some(others, kNamedMax, [this](Member m) { return names_[m]; })));
  if (list.stands() || history_.has_many_lists(gather_->at())) {
    for (const Member m : others) exclude(m, "does not hold the mean that was named");
  }
  begin_again(self_);
}

// Who says that it holds the mean that stands, and does not give it. A single member that says so
// may be the cause itself.
bool AllReduceMachine::exclude_silent_holders(const Members& held_by) {
  if (!history_.has_many_lists(gather_->at())) return false;
  const std::size_t before = gather_->registered().size();
  for (const auto& [holder, by] : gather_->registered().waited_in_vain(held_by)) {
    exclude(holder, "says that it holds a mean, but sent it to no member");
    if (by.size() == 1) exclude(by.front(), "alone waited for a mean and did not receive it");
  }
  return gather_->registered().size() < before;
}

// From the exchange that is gathered. To count as not registered is safe for any member: those who
// are left need a majority for a mean that counts as backed.
void AllReduceMachine::exclude(Member member, std::string_view why) {
  if (member == self_ || !history_.exclude(member)) return;
  gather_->remove(member);
  say_seldom("left out: " + names_[member],
             fmt::format("exchange {}: {} {}: it is left out", gather_->at().exchange,
                         names_[member], why));
}

// --- who has held up others for too long ---------------------------------------------------------

// As long as a majority is left without them: first who sends wrong numbers, then who owes most. Of
// a group of two either goes on alone.
void AllReduceMachine::bar(Progress at) {
  history_.bar(at, {});
  const auto liars = records_->over_complaints(names_[self_], now_);
  const auto slow = records_->over_budget(names_[self_], now_);
  if (liars.empty() && slow.empty()) return;
  std::set<Member> barred;
  Members over;
  std::size_t left = 0;
  for (Member m = 0; m < names_.size(); ++m) {
    if (!liveness_.is_lost(m, now_)) ++left;
    if (liars.contains(names_[m]) || slow.contains(names_[m])) over.push_back(m);
  }
  std::ranges::sort(over, std::greater(), [&](Member m) {
    return std::pair(liars.contains(names_[m]), records_->owed(names_[m], now_));
  });
  for (const Member m : over) {
    const std::size_t others = left - (liveness_.is_lost(m, now_) ? 0 : 1);
    const bool are_enough = 2 * others > names_.size() || (options_.any_mean && members() == 2);
    if (!are_enough) continue;
    left = others;
    barred.insert(m);
    const std::string_view why = liars.contains(names_[m])
                                     ? "sends wrong numbers again and again, or says so of others"
                                     : "has held up the others again and again";
    say_seldom("barred: " + names_[m],
               fmt::format("exchange {}: {} {}: it takes the means of the others, and "
                           "is seldom waited for",
                           at.exchange, names_[m], why));
  }
  history_.bar(at, std::move(barred));
}

// For what the exchange has waited until now, before it goes on.
void AllReduceMachine::charge_waits() {
  const auto overdue = history_.take_overdue(gather_->at());
  const Registrations& registered = gather_->registered();
  const Members sources = history_.sources(gather_->at());
  // A complaint hides no wait.
  const auto cause = registered.find_cause(sources);
  if (cause && cause->second.wrong) charge(cause->first, cause->second, now_);
  if (current_ && current_->joined != 0) {
    if (const auto wait = registered.first_blame(sources, false)) {
      charge(wait->first, wait->second, current_->charged_until);
    } else {
      for (const Member m : overdue) {
        const bool complains = cause && cause->first == m;
        charge(complains ? m : self_, {complains ? cause->second.member : m},
               current_->charged_until);
      }
    }
    current_->charged_until = now_;
  }
  charge_late();
}

// Members that have not registered with us, although most have.
void AllReduceMachine::charge_late() {
  if (!charges_waits()) return;
  for (const Member m : gather_->stragglers(view())) {
    // It went elsewhere a moment ago, and did not say in this exchange that it is behind.
    if (liveness_.lost_at(m) && !gather_->is_late(m)) continue;
    records_->was_late(names_[self_], names_[m], charged_wait(*gather_->most_at()), now_);
  }
}

// For the last member to finish, if the others had the mean for longer than it usually takes from
// one to the next. If it waited for another member for most of that time, that one is charged.
void AllReduceMachine::charge_last(Member member, const std::optional<Waited>& waited) {
  const TimePoint since = gather_->list()->progress_at;
  const Duration usual = 2 * pieces_.usual() + piece_wait() / 4;
  if (!charges_waits() || now_ <= since + usual) return;
  const bool is_victim = waited && gather_->list()->has(waited->of) &&
                         2 * std::chrono::milliseconds(waited->milliseconds) >= now_ - since;
  charge(is_victim ? member : self_, {is_victim ? waited->of : member}, since);
  if (current_) current_->charged_until = now_;
}

// A listed member that leaves makes all begin again, and is charged for what they have waited. If
// it names a listed member as the cause, either may be; else it is left out of the exchange if it
// does this after several lists. Requires: a list that has it.
void AllReduceMachine::charge_leaving(Member from, std::optional<Member> cause) {
  const SentList& list = *gather_->list();
  const TimePoint since = current_ ? std::exchange(current_->charged_until, now_) : list.sent_at;
  const Members sources = history_.sources(gather_->at());
  if (cause && std::ranges::find(sources, *cause) == sources.end()) cause.reset();
  if (charges_waits()) charge(cause ? from : self_, {cause.value_or(from)}, since);
  if (cause || !history_.has_many_lists(gather_->at())) return;
  exclude(from, "leaves one attempt after the other");
}

// Wrong numbers cost the others nothing but another attempt. They are counted like a wait for a
// piece, all the same.
void AllReduceMachine::charge(Member by, const Blame& blame, TimePoint since) {
  const Member of = blame.member;
  if (of >= names_.size() || by == of) return;
  if (blame.wrong) return records_->complained(names_[by], names_[of], piece_wait(), now_);
  records_->waited(names_[by], names_[of], charged_wait(since), now_);
}

// Of the time in which this process itself ran.
Duration AllReduceMachine::charged_wait(TimePoint since) const {
  return std::min(now_ - std::max(since, stopped_until_), kChargedWaits * piece_wait());
}

// The likelier cause where `by` says that it waits for another, or received wrong numbers from it.
Member AllReduceMachine::cause_of(Member by, const Blame& blame) {
  const Member of = blame.member;
  if (by == self_ || of == self_) return by == self_ ? of : by;
  if (!blame.wrong) {
    return records_->owed(names_[by], now_) > records_->owed(names_[of], now_) ? by : of;
  }
  // Wrong numbers are refused by the next member too, once the first is left out. Where only these
  // two are known, they take turns: who lies to one member alone loses as much as that one.
  const bool is_by = records_->sends_wrong(names_[by], now_);
  const bool is_of = records_->sends_wrong(names_[of], now_);
  if (is_by != is_of) return is_by ? by : of;
  const Exchange exchange = gather_->at().exchange;
  return records_->take_turns(names_[by], names_[of], exchange) == names_[by] ? by : of;
}

}  // namespace starling::collective

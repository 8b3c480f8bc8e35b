// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/exchange_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "gossip/peer/network_run.h"

namespace starling::gossip {

using namespace exchange;

namespace {

// Who has done less than a quarter of what every neighbour did meanwhile is stale: it takes their
// model. Otherwise it keeps what it has learnt, as the two sides of a partition do, and goes on
// from where the others are.
constexpr Exchange kStaleFactor = 4;
constexpr Exchange kStaleSlack = 8;
constexpr int kUnusualFactor = 8;  // times the pace
// Neighbours that do not wait for this peer may be faster.
constexpr int kLostFactor = 2;
// Who is waited for is asked so often before it is given up, as a question may get lost.
constexpr int kAsksInPatience = 8;
// So many messages that were sent and did not come: it is as good as cut off.
constexpr int kLostInARow = 4;
// A neighbour may hold us up for so many times the longest wait, and for WaitBudget's share of the
// time after that.
constexpr int kLongestWaits = 2;
// A wait that is longer than the kUnusualFactor of an exchange, and this, is unusual.
constexpr Duration kUsualWait = std::chrono::milliseconds(100);
// A neighbour that is not followed is named after this time: after a restart honest neighbours are
// further for a moment, too.
constexpr Duration kNotFollowed = std::chrono::seconds(2);
// Whoever lets others wait for so long is named.
constexpr Duration kLongWait = std::chrono::seconds(10);

protocol::Eras eras_of(const protocol::MixMessage& message) {
  const auto* const eras = std::get_if<protocol::Eras>(&message.state);
  return eras != nullptr ? *eras : protocol::Eras{};
}

// The furthest exchange that more than half of them have come to.
std::optional<Exchange> reached_by_most(std::vector<Exchange> latest) {
  if (latest.empty()) return std::nullopt;
  const auto middle = latest.begin() + static_cast<std::ptrdiff_t>((latest.size() - 1) / 2);
  std::ranges::nth_element(latest, middle);
  return *middle;
}

}  // namespace

ExchangeMachine::ExchangeMachine(ExchangeOptions options, const topologies::Topology& topology,
                                 Member self, std::vector<std::string> names, Exchange exchange,
                                 TimePoint now, const protocol::Support& support)
    : options_(options),
      topology_(topology),
      self_(self),
      names_(std::move(names)),
      exchange_(exchange),
      first_(exchange),
      resumed_(exchange),
      last_(options.schedule.mixings_until(options.schedule.steps)),
      matrix_(topology.at(exchange)),
      graph_(neighbours_of(topology, self, exchange)),
      quorum_(names_.size(), now, support),
      jumps_(options.run_age, now),
      eras_(!options.loss_safe, options.spread) {
  ahead_.in_step(exchange, now);
  if (options_.new_process && exchange > 0) eras_.share_nothing(exchange);
  STARLING_CHECK(names_.size() == topology.nodes() && self < topology.nodes());
}

std::vector<Action> ExchangeMachine::on(Event event, TimePoint now) {
  const TimePoint before = std::exchange(now_, now);
  // A deadline passed and the process did not run. A standstill counts once, however many events it
  // held back.
  if (due_) stood_still(now - std::max(*due_, before));
  std::visit([this](auto& e) { handle(e); }, event);
  if (state_ == State::kPacing && awaits_others_since_ && !nearest_behind()) move_on();
  due_ = find_deadline();
  return std::exchange(actions_, {});
}

std::optional<TimePoint> ExchangeMachine::find_deadline() const {
  if (state_ == State::kPacing) return resume_;
  if (state_ != State::kWaiting) return std::nullopt;
  if (!awaits_anybody()) return now_;
  TimePoint next = TimePoint::max();
  for (const topologies::Weight& sender : matrix_->senders(self_)) {
    if (!awaits(sender.node)) continue;
    next = std::min({next, give_up_at(sender.node), ask_at(sender.node).value_or(next)});
    const auto found = neighbours_.find(sender.node);
    if (found == neighbours_.end() || !found->second.down_since) continue;
    // Who was never heard may be waited for beyond that.
    const TimePoint grace = *found->second.down_since + options_.link_grace;
    if (grace > now_) next = std::min(next, grace);
  }
  return next;
}

// After a shorter time the others still wait for this peer.
void ExchangeMachine::stood_still(Duration time) {
  if (time > options_.patience_min / 2) lost_.add(time, now_);
}

// Local steps or a mixing took so long.
void ExchangeMachine::worked(Duration time) {
  const Duration pace = quorum_.pace({});
  if (quorum_.knows_pace() && time > kUnusualFactor * pace) stood_still(time - pace);
}

bool ExchangeMachine::wants(Member from, Exchange exchange) const {
  if (state_ == State::kFinished) return false;
  if (options_.schedule.after(exchange) >= options_.schedule.steps) return false;
  const auto found = neighbours_.find(from);
  if (found != neighbours_.end() && exchange < found->second.next) return false;
  if (exchange >= exchange_) return true;
  return options_.loss_safe && exchange + kLateExchangesMax >= exchange_ &&
         is_sender_soon(from, exchange + kLateExchangesMax);
}

// Whether an exchange that has not been mixed yet, this one or a later one, mixes its messages.
bool ExchangeMachine::is_sender_soon(Member member, Exchange until) const {
  if (topology_.period() == 1) return true;
  for (Exchange at = exchange_; at <= until; ++at) {
    const auto matrix = topology_.at(at);
    if (std::ranges::binary_search(matrix->senders(self_), member, {}, &topologies::Weight::node)) {
      return true;
    }
  }
  return false;
}

void ExchangeMachine::say(LogLevel level, std::string line) {
  actions_.push_back(Say{level, std::move(line)});
}

void ExchangeMachine::say(const std::optional<EraPlan::TooOften>& too_often) {
  if (!too_often) return;
  say(LogLevel::kWarning,
      fmt::format("the state that neighbours share would start again too often ({} times since "
                  "exchange {}, now as {} was away or asks for it, for itself or another): not "
                  "before exchange {}",
                  EraPlan::kFree, too_often->since, names_[too_often->asker], too_often->next));
}

// --- the protocol --------------------------------------------------------------------------------

void ExchangeMachine::handle(const Begin& begin) {
  STARLING_CHECK(state_ == State::kIdle);
  if (!begin.trained) return go_on_or_finish();
  began_ = now_;
  trained_before_ = true;
  state_ = State::kTraining;
  handle(Trained{});
}

void ExchangeMachine::go_on_or_finish() {
  if (step() < options_.schedule.steps) return begin_exchange();
  state_ = State::kFinished;
  for (auto& [member, neighbour] : neighbours_) neighbour.arrivals.clear();
  actions_.push_back(Finish{});
}

void ExchangeMachine::begin_exchange() {
  matrix_ = topology_.at(exchange_);
  began_ = now_;
  gave_up_ = false;
  Train train{.exchange = exchange_, .step = step()};
  train.steps = static_cast<int>(options_.schedule.after(exchange_ + 1) - train.step);
  train.restart = eras_.begin(exchange_);
  train.plain = plain_ = options_.corrects_steps && eras_.is_planned();
  state_ = State::kTraining;
  actions_.push_back(train);
}

void ExchangeMachine::announce_to(std::size_t place) {
  ++traffic_.messages;
  const Member to = matrix_->receivers(self_)[place].node;
  // Whose messages are not mixed must not mix ours: what they share would be shared by one only.
  const auto found = neighbours_.find(to);
  const bool leaves_out = found != neighbours_.end() && is_left_out(found->second);
  const auto eras = leaves_out ? protocol::Eras{EraPlan::kAlone, 0} : eras_.eras();
  actions_.push_back(Announce{to, place, exchange_, eras});
}

void ExchangeMachine::handle(const Absent& absent) {
  if (absent.member < names_.size()) neighbours_[absent.member].missed = true;
}

void ExchangeMachine::handle(const Trained&) {
  STARLING_CHECK(state_ == State::kTraining);
  state_ = State::kWaiting;
  waiting_ = patient_since_ = now_;
  work_ = now_ - began_;
  worked(work_);
  if (!std::exchange(trained_before_, false)) jumps_.trained(work_);
  for (std::size_t place = 0; place < matrix_->receivers(self_).size(); ++place) announce_to(place);
  mix_if_complete();
}

Duration ExchangeMachine::patience(const Neighbour& neighbour) const {
  return std::max(neighbour.patience, options_.patience_min);
}

TimePoint ExchangeMachine::give_up_at(Member member) const {
  const auto found = neighbours_.find(member);
  if (found == neighbours_.end() || !found->second.met) {
    if (is_starting()) return waiting_ + options_.start_patience;
    return patient_since_ + options_.patience_min;
  }
  const Neighbour& neighbour = found->second;
  const TimePoint silent_since = std::max(patient_since_, neighbour.alive_at);
  return std::min(silent_since + patience(neighbour), waiting_ + longest_wait(neighbour));
}

// When the wait began.
Duration ExchangeMachine::longest_wait(const Neighbour& neighbour) const {
  const Duration left = neighbour.budget.left(kLongestWaits * options_.patience_max, waiting_);
  const Duration longest = std::min(left, options_.patience_max);
  const Duration least = std::min(options_.patience_min, options_.patience_max);
  return longest >= least ? longest : Duration::zero();
}

// Also the wait for a neighbour that was given up: whatever it sends afterwards must not hold us up
// so again. Not in the first exchange, in which members start.
void ExchangeMachine::end_wait(Neighbour& neighbour) {
  if (exchange_ == first_ || neighbour.wait_over == exchange_) return;
  neighbour.wait_over = exchange_;
  const Duration wait = now_ - waiting_;
  const Duration usual = std::max(kUsualWait, kUnusualFactor * quorum_.pace(work_));
  if (wait > usual) neighbour.budget.spend(std::min(wait, longest_wait(neighbour)), now_);
}

// None: there is nothing to ask, or nobody.
std::optional<TimePoint> ExchangeMachine::ask_at(Member member) const {
  const auto found = neighbours_.find(member);
  if (found == neighbours_.end()) return std::nullopt;
  const Neighbour& neighbour = found->second;
  if (!neighbour.met || neighbour.down_since || neighbour.sent == exchange_) return std::nullopt;
  const Duration interval = options_.patience_min / kAsksInPatience;
  const TimePoint asked_at = std::max(patient_since_, neighbour.asked_at);
  // Who has just answered is asked less often.
  return std::max(asked_at + interval, neighbour.alive_at + 2 * interval);
}

// Whether the network may just be starting, so that members that were never heard are waited for.
// From exchange 0: until a neighbour is further than the spread. From a checkpoint, where perhaps
// only this peer was restarted: until anybody is heard.
bool ExchangeMachine::is_starting() const {
  if (exchange_ != first_) return false;
  return std::ranges::none_of(neighbours_, [this](const auto& entry) {
    const Neighbour& neighbour = entry.second;
    return neighbour.met && (first_ > 0 || neighbour.latest > options_.spread);
  });
}

bool ExchangeMachine::is_linked(const Neighbour& neighbour) const {
  return !neighbour.down_since || now_ < *neighbour.down_since + options_.link_grace;
}

bool ExchangeMachine::is_away(Member member) const {
  const auto found = neighbours_.find(member);
  if (found == neighbours_.end()) return false;  // it may be starting as we are
  const Neighbour& neighbour = found->second;
  return neighbour.missed || !neighbour.reachable || !is_linked(neighbour);
}

bool ExchangeMachine::awaits(Member member) const {
  const auto found = neighbours_.find(member);
  if (found == neighbours_.end()) return true;
  const Neighbour& neighbour = found->second;
  if (neighbour.missed || neighbour.given_up == exchange_ || is_left_out(neighbour)) return false;
  if (longest_wait(neighbour) == Duration::zero()) return false;
  // Never heard: it may be starting as we are. Later on only who can be reached is waited for.
  if (!neighbour.met) return is_starting() || (neighbour.reachable && is_linked(neighbour));
  if (neighbour.arrivals.contains(exchange_)) return false;
  return is_linked(neighbour) && neighbour.reachable && neighbour.latest <= exchange_;
}

bool ExchangeMachine::awaits_anybody() const {
  const auto senders = matrix_->senders(self_);
  return std::ranges::any_of(senders, [this](const auto& sender) { return awaits(sender.node); });
}

void ExchangeMachine::mix_if_complete() {
  if (state_ != State::kWaiting) return;
  bool is_complete = true;
  for (const topologies::Weight& sender : matrix_->senders(self_)) {
    Neighbour& neighbour = neighbours_[sender.node];
    if (awaits(sender.node)) {
      is_complete = false;
      neighbour.wait_over.reset();
    } else {
      end_wait(neighbour);
    }
  }
  if (is_complete) mix();
}

void ExchangeMachine::handle(const Tick&) {
  if (state_ == State::kPacing && now_ >= resume_) return move_on();
  if (state_ != State::kWaiting) return;
  ask_and_give_up();
  mix_if_complete();
}

void ExchangeMachine::ask_and_give_up() {
  std::string missing;
  std::size_t count = 0;
  for (const topologies::Weight& sender : matrix_->senders(self_)) {
    if (!awaits(sender.node)) continue;
    Neighbour& neighbour = neighbours_[sender.node];
    if (now_ >= give_up_at(sender.node)) {
      missing += (count++ == 0 ? "" : ", ") + names_[sender.node];
      const bool is_lost = neighbour.sent == exchange_ && ++neighbour.lost_in_a_row < kLostInARow;
      neighbour.missed = !is_lost;
      neighbour.given_up = exchange_;
    } else if (const auto at = ask_at(sender.node); at && now_ >= *at) {
      neighbour.asked_at = now_;
      actions_.push_back(Ask{sender.node, exchange_});
    }
  }
  if (count == 0) return;
  gave_up_ = true;
  say(LogLevel::kWarning,
      fmt::format("no message from {} within {} (step {}, exchange {}); {} weight is added to "
                  "this node's own",
                  missing,
                  format_duration(std::chrono::round<std::chrono::milliseconds>(now_ - waiting_)),
                  step(), exchange_, count == 1 ? "its" : "their"));
}

bool ExchangeMachine::fits(const Arrival& arrival) const {
  const protocol::MixMessage& message = arrival.message;
  if (!quorum_.counts(arrival.support, now_)) return false;
  if (!options_.loss_safe) {
    const protocol::Eras its = eras_of(message);
    const bool are_plain = plain_ && its.next > exchange_;
    return message.exchange == exchange_ && (eras_.is_shared(its.current) || are_plain);
  }
  return message.exchange + kLateExchangesMax >= exchange_;
}

// The newest that is not of a later exchange.
std::optional<Arrival> ExchangeMachine::take_message(Neighbour& neighbour) {
  const auto later = neighbour.arrivals.upper_bound(exchange_);
  if (later == neighbour.arrivals.begin()) return std::nullopt;
  Arrival newest = std::move(std::prev(later)->second);
  neighbour.arrivals.erase(neighbour.arrivals.begin(), later);
  neighbour.next = newest.message.exchange + 1;
  return newest;
}

std::vector<std::optional<Arrival>> ExchangeMachine::take_inbox() {
  std::vector<std::optional<Arrival>> inbox;
  for (const topologies::Weight& sender : matrix_->senders(self_)) {
    std::optional<Arrival>& entry = inbox.emplace_back();
    Neighbour& neighbour = neighbours_[sender.node];
    neighbour.sends = true;
    if (neighbour.met && neighbour.reachable && !neighbour.arrivals.contains(exchange_) &&
        neighbour.latest > exchange_) {
      ++traffic_.lost;
      if (neighbour.lost_line.is_due(now_)) {
        say(LogLevel::kInfo, fmt::format("{} is at exchange {}: its message of exchange {} is lost",
                                         names_[sender.node], neighbour.latest, exchange_));
      }
    }
    std::optional<Arrival> message = take_message(neighbour);
    const bool came = message.has_value() && !is_left_out(neighbour);
    if (came) ++came_count_;
    if (came && fits(*message)) entry = std::move(message);
    // A message of another era is none, but neither a loss: a common beginning is planned.
    if (came && !entry) continue;
    if (std::exchange(neighbour.present, came) != came && !eras_.is_planned()) {
      say(eras_.plan(exchange_, sender.node));
    }
  }
  return inbox;
}

// Its neighbours do not wait for a member that claims to be further ahead, but its message of this
// exchange arrives all the same. So it is missing and present in turn, and the shared state is
// begun again each time.
void ExchangeMachine::contradict(Member member) {
  if (options_.loss_safe) return;
  Neighbour& neighbour = neighbours_[member];
  const bool is_forgotten = exchange_ >= neighbour.contradicted_at + eras_.span();
  neighbour.contradicted_at = exchange_;
  neighbour.contradictions = is_forgotten ? 1 : neighbour.contradictions + 1;
  if (neighbour.contradictions != kContradictionsMax + 1) return;
  say(LogLevel::kWarning,
      fmt::format(
          "{} says again and again that it is far ahead, and is not: it is left out until {} "
          "have passed without that",
          names_[member], counted(eras_.span(), "exchange")));
}

bool ExchangeMachine::is_left_out(const Neighbour& neighbour) const {
  return neighbour.contradictions > kContradictionsMax &&
         exchange_ < neighbour.contradicted_at + eras_.span();
}

void ExchangeMachine::mix() {
  came_count_ = 0;
  Mix mix{.exchange = exchange_, .inbox = take_inbox()};
  expected_count_ = static_cast<std::uint32_t>(mix.inbox.size());
  heard_count_ = static_cast<std::uint32_t>(
      std::ranges::count_if(mix.inbox, [](const auto& entry) { return entry.has_value(); }));
  state_ = State::kMixing;
  mixing_ = now_;
  actions_.push_back(std::move(mix));
}

void ExchangeMachine::handle(const Mixed& mixed) {
  STARLING_CHECK(state_ == State::kMixing);
  worked(now_ - mixing_);
  // As where it did not come, or comes again.
  if (mixed.unsettled && !eras_.is_planned()) eras_.plan(exchange_);
  const bool complete = heard_count_ == expected_count_;
  // The usual time of an exchange is not learned from the first one, which includes the start of
  // the network, nor from one in which no message came or a deadline passed.
  const bool shows_pace = came_count_ > 0 && !gave_up_ && exchange_ != first_;
  const Duration took = now_ - began_;
  if (shows_pace && quorum_.held()) quorum_.learn(took);
  ++exchange_;
  const auto held_back = held_back_until();
  if ((complete && !quorum_.is_minority(now_)) || exchange_ == first_ + 1) {
    const bool is_unusual = quorum_.knows_pace() && took > kUnusualFactor * quorum_.pace({});
    ahead_.in_step(exchange_, now_, is_unusual ? took - quorum_.pace({}) : Duration::zero());
    if (complete && !is_unusual) lost_.exchanged();
  }
  for (auto& [member, neighbour] : neighbours_) {
    std::erase_if(neighbour.arrivals,
                  [this](const auto& a) { return a.first + kLateExchangesMax < exchange_; });
  }
  const auto others = others_come_at();
  const auto until = std::max(others, held_back);  // none is before all others
  if (!until || *until <= now_) return move_on();
  state_ = State::kPacing;
  resume_ = *until;
  if (others) awaits_others_since_ = now_;
}

// Between two exchanges: where the next one is.
void ExchangeMachine::move_on() {
  if (const auto since = std::exchange(awaits_others_since_, std::nullopt)) {
    waits_for_others_.spend(now_ - *since, now_);
  }
  if (rejoin_majority()) return;
  // On directed graphs others may be ahead by as much as a word takes to reach them, and wait for
  // us there. To leave out exchanges for less would take messages from others, who would leave out
  // some in turn, for ever. Who is further does not wait.
  const Exchange target = furthest();
  say_who_is_not_followed(target);
  if (target <= exchange_ + options_.spread) return go_on_or_finish();
  if (!is_stale()) {
    go_to(target);
    return go_on_or_finish();
  }
  Copy copy{.donors = donors_at(target)};
  say(LogLevel::kInfo,
      fmt::format("behind by {}: taking the model of {}", counted(target - exchange_, "exchange"),
                  names_[copy.donors.front()]));
  majority_.reset();
  copy_from(std::move(copy));
}

void ExchangeMachine::copy_from(Copy copy) {
  state_ = State::kCopying;
  copying_ = now_;
  donors_ = copy.donors.size();
  actions_.push_back(std::move(copy));
}

// Neighbours within the spread of `target`: each sends a part of its model. Those that claim to be
// further are asked only where no other is there.
std::vector<Member> ExchangeMachine::donors_at(Exchange target) const {
  std::vector<Member> near;
  std::vector<Member> further;
  for (const auto& [member, neighbour] : neighbours_) {
    if (!is_heeded(neighbour) || neighbour.latest + options_.spread < target) continue;
    (neighbour.latest <= target + options_.spread ? near : further).push_back(member);
  }
  std::vector<Member>& donors = near.empty() ? further : near;
  if (donors.size() > options_.donors_max) donors.resize(options_.donors_max);
  return std::move(donors);
}

// --- without a quorum ---------------------------------------------------------------------------

// Where the nearest neighbour is, if all are further behind than a word takes to spread, and two
// said so in this exchange, or the only one. A peer that was alone for a short time finds them so.
std::optional<Exchange> ExchangeMachine::nearest_behind() const {
  std::size_t there = 0;
  std::vector<Exchange> said;
  for (const auto& [member, neighbour] : neighbours_) {
    if (!is_heeded(neighbour)) continue;
    ++there;
    if (!is_past(neighbour)) return std::nullopt;
    if (neighbour.support_at >= began_) said.push_back(neighbour.latest);
  }
  if (said.empty() || said.size() < std::min(there, AheadBound::kWitnesses)) return std::nullopt;
  return std::ranges::max(said);
}

// They do not follow a single one, and their messages come too late: it waits until one is here,
// and for as long as the nearest may take.
std::optional<TimePoint> ExchangeMachine::others_come_at() const {
  const auto nearest = nearest_behind();
  const bool is_over = step() >= options_.schedule.steps;
  if (heard_count_ > 0 || !nearest || is_over || quorum_.is_minority(now_)) return std::nullopt;
  const double seconds =
      static_cast<double>(exchange_ - *nearest) * to_seconds(quorum_.pace(work_));
  const double most = to_seconds(waits_for_others_.left(options_.patience_max, now_));
  return now_ + from_seconds(std::min(seconds, most));
}

// Who cannot know what the others do must not run through the exchanges, which take least time
// where nobody is waited for.
std::optional<TimePoint> ExchangeMachine::held_back_until() const {
  if (names_.size() <= 2) return std::nullopt;
  const bool silent = std::ranges::any_of(matrix_->senders(self_), [this](const auto& sender) {
    const Neighbour& neighbour = neighbours_.at(sender.node);
    return !neighbour.present && neighbour.reachable && neighbour.latest < exchange_;
  });
  const bool doubtful = came_count_ < expected_count_ && (silent || quorum_.in_doubt(now_));
  if (!doubtful && !quorum_.is_minority(now_)) return std::nullopt;
  const TimePoint until = began_ + quorum_.pace(work_);
  return until > now_ ? std::optional(until) : std::nullopt;
}

// Back among the majority: its model replaces what was learned apart.
bool ExchangeMachine::rejoin_majority() {
  Copy copy;
  for (const auto& [member, neighbour] : neighbours_) {
    const bool outranks =
        is_there(neighbour) && quorum_.outranked_by(neighbour.support, neighbour.support_at, now_);
    if (!outranks || copy.donors.size() == options_.donors_max) continue;
    if (copy.donors.empty()) majority_ = {neighbour.support, neighbour.support_at};
    copy.donors.push_back(member);
  }
  if (copy.donors.empty()) return false;
  say(LogLevel::kInfo,
      fmt::format("a quorum went on without this peer: taking the model of {} in place of what was "
                  "learned apart",
                  names_[copy.donors.front()]));
  copy_from(std::move(copy));
  return true;
}

// --- falling behind -----------------------------------------------------------------------------

bool ExchangeMachine::is_there(const Neighbour& neighbour) const {
  return neighbour.met && neighbour.reachable && is_linked(neighbour);
}

bool ExchangeMachine::is_heeded(const Neighbour& neighbour) const {
  return is_there(neighbour) && quorum_.counts(neighbour.support, now_);
}

// When it was last heard it was further behind than a word takes to spread.
bool ExchangeMachine::is_past(const Neighbour& neighbour) const {
  return neighbour.met && neighbour.latest + options_.spread < exchange_;
}

// How many neighbours must say that they are further before they are believed: two, or one of who
// has no other. Also where the others are away, or far behind: else one liar beside a member that
// is started again would move those between them.
std::size_t ExchangeMachine::witnesses_needed() const {
  const std::size_t others = is_whole_graph() ? graph_.size() : names_.size() - 1;
  return std::clamp<std::size_t>(others, 1, AheadBound::kWitnesses);
}

// Or some step may have any member as a neighbour.
bool ExchangeMachine::is_whole_graph() const {
  return topology_.period() > 0 && topology_.period() <= topology_.nodes();
}

bool ExchangeMachine::may_be_neighbour(Member member) const {
  return !is_whole_graph() || std::ranges::binary_search(graph_, member);
}

// Where to go on, of what neighbours with a link say; at or before our own exchange: nowhere else.
// What enough of them confirm is believed in reason, and then the further one, which waits where it
// is. What a single one says is believed as far as it makes up for time that we lost, and not at
// all before we know what an exchange takes. Other members together count as one more, at the
// exchange that most of them have reached: a liar can greet all of them, and so can a neighbour
// that it has led astray.
Exchange ExchangeMachine::furthest() const {
  std::vector<Exchange> claims;
  std::vector<Exchange> beyond_graph;
  for (const auto& [member, neighbour] : neighbours_) {
    if (!is_heeded(neighbour)) continue;
    (may_be_neighbour(member) ? claims : beyond_graph).push_back(neighbour.latest);
  }
  if (claims.empty()) return 0;
  const Exchange alone = std::min(std::ranges::max(claims), made_up_for());
  const std::size_t needed = witnesses_needed();
  const auto others = reached_by_most(std::move(beyond_graph));
  if (others && needed > 1) claims.push_back(*others);
  std::ranges::sort(claims);
  if (claims.size() < needed) return alone;
  const Exchange witnessed = claims[claims.size() - needed];
  if (witnessed <= exchange_ + options_.spread) return std::max(witnessed, alone);
  const auto beyond = std::ranges::upper_bound(claims, witnessed + options_.spread);
  return std::max(alone, std::min(*std::prev(beyond), explainable(needed)));
}

// Others had some exchanges to bear it out.
void ExchangeMachine::say_who_is_not_followed(Exchange target) {
  const Exchange most = std::max(target, exchange_) + options_.spread;
  for (auto& [member, neighbour] : neighbours_) {
    if (!is_heeded(neighbour) || neighbour.latest <= most) {
      neighbour.ahead_since.reset();
      continue;
    }
    if (!neighbour.ahead_since) neighbour.ahead_since = {exchange_, now_};
    const auto& [exchange, time] = *neighbour.ahead_since;
    if (exchange_ <= exchange + kStaleSlack || now_ < time + kNotFollowed) continue;
    if (!neighbour.ahead_line.is_due(now_)) continue;
    say(LogLevel::kWarning,
        fmt::format("{} says that it is at exchange {}, and no other neighbour bears it out: this "
                    "peer is at {} and does not follow",
                    names_[member], neighbour.latest, exchange_));
  }
}

// Where we would be, had we lost no time.
Exchange ExchangeMachine::made_up_for() const {
  if (!quorum_.knows_pace()) return std::min(last_, exchange_);
  const double pace = std::max(to_seconds(quorum_.pace({})), 1e-9);
  const double lost = kLostFactor * to_seconds(lost_.left(now_)) / pace;
  return std::min(last_, exchange_ + static_cast<Exchange>(std::min(lost, 1e18)));
}

// What may be, if so many confirm it.
Exchange ExchangeMachine::explainable(std::size_t witnesses) const {
  const Exchange slack = 2 * options_.spread;
  const Exchange most = std::min(last_, jumps_.limit(witnesses, slack, now_).value_or(last_));
  if (!quorum_.knows_pace()) return most;
  return std::min(most, *ahead_.confirmed(quorum_.pace({}), now_, slack));
}

Duration ExchangeMachine::donor_patience() const {
  if (!quorum_.knows_pace()) return options_.patience_max;
  return options_.patience_min + 2 * quorum_.pace({});
}

Duration ExchangeMachine::donor_begins_within() const {
  const Duration least = options_.patience_min;
  return least + (quorum_.knows_pace() ? quorum_.pace({}) : least);
}

bool ExchangeMachine::is_stale() const {
  return std::ranges::all_of(neighbours_, [](const auto& entry) {
    const Neighbour& neighbour = entry.second;
    return neighbour.overtaken || !neighbour.sends || !neighbour.met || !neighbour.reachable;
  });
}

void ExchangeMachine::go_to(Exchange target) {
  say(LogLevel::kInfo, fmt::format("goes on from exchange {} instead of {}, where the others are",
                                   target, exchange_));
  const double left_out = target > exchange_ ? static_cast<double>(target - exchange_) : 0;
  lost_.make_up_for(from_seconds(left_out * to_seconds(quorum_.pace({})) / kLostFactor));
  exchange_ = resumed_ = target;
  ahead_.gone_to(target, quorum_.pace({}), now_);
  for (auto& [member, neighbour] : neighbours_) {
    if (neighbour.latest <= target + options_.spread) neighbour.overtaken = false;
    neighbour.heard_at = target;
    neighbour.ahead_since.reset();
    neighbour.next = std::min(neighbour.next, target);
  }
  eras_.go_to(target);
}

void ExchangeMachine::handle(const Copied& copied) {
  STARLING_CHECK(state_ == State::kCopying);
  const auto majority = std::exchange(majority_, std::nullopt);
  // The others went on meanwhile. The wait for a donor that sends nothing must not explain its
  // claim.
  if (copied.givers == donors_ && now_ - copying_ < options_.patience_min) {
    lost_.add(now_ - copying_, now_);
  }
  if (!copied.exchange) {
    say(LogLevel::kWarning, "no peer sent a model: continues with its own");
  }
  // A donor's word of its exchange is believed no further than that of others. Those who were asked
  // and gave nothing are no witnesses.
  const bool believed = majority || copied.givers >= witnesses_needed();
  const Exchange most = believed ? explainable(copied.givers) : made_up_for();
  const Exchange given = std::min(copied.exchange.value_or(0), most);
  Exchange target = exchange_;
  if (majority && copied.exchange) {
    quorum_.rejoin(majority->first, majority->second);
    target = std::max(given, std::min(exchange_, majority_from_));
  } else if (!majority) {
    target = std::max({exchange_, furthest(), given});
  }
  if (target != exchange_) {
    go_to(target);
  } else if (copied.exchange) {
    eras_.share_nothing(exchange_);
  }
  go_on_or_finish();
}

// Where a neighbour is known to be, and whether that is far more than we did meanwhile.
// False: no peer of this run can be there, so its word counts for nothing.
bool ExchangeMachine::note(Member member, Exchange exchange, const protocol::Support& support) {
  if (exchange > last_) return false;
  const bool was_starting = is_starting();
  Neighbour& neighbour = neighbours_[member];
  neighbour.alive_at = now_;
  neighbour.missed = false;
  neighbour.lost_in_a_row = 0;
  if (!std::exchange(neighbour.met, true)) neighbour.latest = neighbour.heard_at = first_;
  follow(member, exchange, support);
  // What the others send to who comes to a network that runs is on its way only now.
  if (was_starting && !is_starting()) patient_since_ = now_;
  return true;
}

void ExchangeMachine::go_back(Neighbour& neighbour, Exchange exchange) {
  if (exchange >= neighbour.latest) return;
  neighbour.latest = exchange;
  neighbour.heard_at = exchange_;
  neighbour.next = std::min(neighbour.next, exchange);
}

void ExchangeMachine::follow(Member member, Exchange exchange, const protocol::Support& support) {
  Neighbour& neighbour = neighbours_[member];
  // It took the model of a quorum: where it had gone without one is no progress.
  if (neighbour.support.minority && !support.minority) go_back(neighbour, exchange);
  neighbour.support = support;
  neighbour.support_at = now_;
  // Not what is sent again: it took the model of a quorum that is not as far, or was started again.
  if (exchange + options_.resent + 1 < neighbour.latest) {
    const bool was_far_ahead = neighbour.latest > exchange_ + options_.spread;
    go_back(neighbour, exchange);
    if (was_far_ahead) contradict(member);
  }
  if (exchange <= neighbour.latest) return;
  const Exchange theirs = exchange - neighbour.latest;
  const Exchange ours = exchange_ - std::min(exchange_, neighbour.heard_at);
  // Until we are where the others are: what it says next is no proof of ours.
  if (theirs > kStaleFactor * ours + kStaleSlack) neighbour.overtaken = true;
  if (exchange <= exchange_ + 1) neighbour.overtaken = false;
  neighbour.latest = exchange;
  neighbour.heard_at = exchange_;
}

// What was given up: slow, or lost.
void ExchangeMachine::settle_given_up(Neighbour& neighbour, Exchange exchange) {
  if (!neighbour.given_up || exchange < *neighbour.given_up) return;
  if (exchange == *neighbour.given_up) {
    neighbour.patience = std::min(2 * patience(neighbour), options_.patience_max);
  } else {
    ++traffic_.lost;
  }
  neighbour.given_up.reset();
}

void ExchangeMachine::handle(MessageReceived& came) {
  const Arrival& arrival = came.arrival;
  const Member from = arrival.from;
  if (arrival.from >= names_.size()) return;
  if (!note(arrival.from, arrival.message.exchange, arrival.support)) return;
  settle_given_up(neighbours_[arrival.from], arrival.message.exchange);
  if (!is_left_out(neighbours_[from])) say(eras_.hear(from, eras_of(arrival.message), exchange_));
  if (!wants(arrival.from, arrival.message.exchange)) return;
  keep(std::move(came.arrival));
  mix_if_complete();
  if (state_ == State::kMixing) say_who_is_slow(from);
}

// One that answers that it has not sent yet holds its neighbours up without a fault of anybody's:
// who it is should be known, though not from a line an exchange.
void ExchangeMachine::say_who_is_slow(Member last) {
  const Duration waited = now_ - waiting_;
  if (waited < std::max(kLongWait, 4 * work_) || !slow_.is_due(now_)) return;
  say(LogLevel::kInfo,
      fmt::format("waited {} for the message of {}, which may have waited for others itself "
                  "(exchange {})",
                  format_duration(std::chrono::round<std::chrono::seconds>(waited)), names_[last],
                  exchange_));
}

void ExchangeMachine::keep(Arrival arrival) {
  const Exchange at = arrival.message.exchange;
  auto& arrivals = neighbours_[arrival.from].arrivals;
  if (!arrivals.insert_or_assign(at, std::move(arrival)).second) return;
  ++traffic_.arrived;
  if (at < exchange_) {
    ++traffic_.late;
    traffic_.staleness += exchange_ - at;
  }
  // A newer one takes the place of one that is late. Who waits for us is at most the spread ahead;
  // of who is further, the last message: from there we may go on.
  const Exchange latest = arrivals.rbegin()->first;
  std::erase_if(arrivals, [&](const auto& a) {
    const bool superseded = a.first < at && at <= exchange_;
    return superseded || (a.first > exchange_ + options_.spread + 1 && a.first < latest);
  });
  if (arrivals.size() <= options_.held_max) return;
  const bool is_late = arrivals.begin()->first < exchange_;
  arrivals.erase(is_late ? arrivals.begin() : std::next(arrivals.begin()));
}

void ExchangeMachine::handle(const MessageUnused& unused) {
  if (unused.from >= names_.size()) return;
  if (!note(unused.from, unused.exchange, unused.support)) return;
  settle_given_up(neighbours_[unused.from], unused.exchange);
  mix_if_complete();
}

void ExchangeMachine::handle(const Asked& asked) {
  if (asked.from >= names_.size()) return;
  actions_.push_back(Answer{asked.from, asked.exchange, exchange_, has_sent(asked.exchange)});
  const auto found = neighbours_.find(asked.from);
  if (found == neighbours_.end() || !found->second.met || asked.exchange > last_) return;
  follow(asked.from, surely_past(asked.exchange), asked.support);
  mix_if_complete();
}

bool ExchangeMachine::has_sent(Exchange exchange) const {
  if (exchange < resumed_) return false;
  if (exchange < exchange_) return true;
  return exchange == exchange_ && (state_ == State::kWaiting || state_ == State::kMixing);
}

void ExchangeMachine::handle(const Answered& answered) {
  const auto found = neighbours_.find(answered.from);
  if (found == neighbours_.end() || !found->second.met || answered.exchange > last_) return;
  Neighbour& neighbour = found->second;
  follow(answered.from, surely_past(answered.exchange), answered.support);
  if (state_ != State::kWaiting || answered.asked != exchange_) return;
  const bool is_near =
      answered.exchange <= exchange_ && answered.exchange + options_.spread >= exchange_;
  if (answered.sent) {
    neighbour.sent = exchange_;
    neighbour.alive_at = now_;
  } else if (is_near) {
    neighbour.alive_at = now_;
  } else {
    neighbour.given_up = exchange_;  // it has left it out, or is about to
    // It comes nearer by a model that it copies: until it is heard again, it is not asked each
    // time.
    if (answered.exchange < exchange_) neighbour.missed = true;
  }
  mix_if_complete();
}

void ExchangeMachine::handle(const HelloReceived& hello) {
  if (hello.from >= names_.size() || !hello.begun) return;
  if (hello.exchange > last_) return;
  if (note(hello.from, surely_past(hello.exchange), hello.support)) mix_if_complete();
}

// Who says that it is at this exchange may have messages under way, or send them again: only what
// is older than that is known to be lost.
Exchange ExchangeMachine::surely_past(Exchange exchange) const {
  return exchange - std::min(exchange, options_.resent);
}

// What was sent while there was no link did not go anywhere.
void ExchangeMachine::handle(const LinkUp& up) {
  if (up.member >= names_.size()) return;
  neighbours_[up.member].down_since.reset();
  neighbours_[up.member].patience = {};
  if (state_ != State::kWaiting) return;
  const auto receivers = matrix_->receivers(self_);
  const auto found = std::ranges::lower_bound(receivers, up.member, {}, &topologies::Weight::node);
  if (found == receivers.end() || found->node != up.member) return;
  announce_to(static_cast<std::size_t>(found - receivers.begin()));
}

void ExchangeMachine::handle(const LinkDown& down) {
  if (down.member >= names_.size()) return;
  auto& since = neighbours_[down.member].down_since;
  if (!since) since = now_;
}

void ExchangeMachine::handle(const Reach& reach) {
  if (reach.member >= names_.size()) return;
  neighbours_[reach.member].reachable = reach.reachable;
  const bool was_minority = quorum_.is_minority(now_);
  if (quorum_.reach(reach.member, reach.reachable, now_)) {
    // What goes on without us began there, or as far behind as a word takes to spread.
    const bool goes_apart = !was_minority && !quorum_.held();
    if (goes_apart) majority_from_ = exchange_ - std::min(exchange_, options_.spread);
    say(quorum_.held() ? LogLevel::kInfo : LogLevel::kWarning, quorum_.tell());
  }
  mix_if_complete();
}

}  // namespace starling::gossip

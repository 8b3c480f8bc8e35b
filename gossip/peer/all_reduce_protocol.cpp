// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/all_reduce_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "gossip/algorithms/algorithm_state.h"
#include "gossip/collective/group_reduce_machine.h"
#include "gossip/progress/quorum.h"

namespace starling::gossip {

using collective::Floats;
using protocol::ReducePiece;
using protocol::VectorTransfer;

namespace {

// Who copies takes a part of the model from so many.
constexpr std::size_t kDonorsMax = 4;
// Who copies for the third time without an exchange with others in between does not keep up.
constexpr int kCopiesInARow = 3;
constexpr Duration kSlowAfter = std::chrono::seconds(5);

collective::AllReduceOptions reduce_options(const ProtocolPatience& patience, Exchange first) {
  collective::AllReduceOptions options;
  // Before the very first exchange the others may still be starting.
  options.stragglers = {.initial = first == 0 ? patience.start : patience.min,
                        .min = patience.min,
                        .max = std::max(patience.max, patience.start)};
  // Somewhat more than members may be late.
  options.answer = patience.min + patience.min / 2;
  options.pieces = {.initial = std::max(patience.max / 4, options.answer),
                    .min = options.answer,
                    .max = std::max(patience.max, options.answer)};
  return options;
}

collective::GroupReduceMachine::Options group_options(const NetworkRun& run,
                                                      const ProtocolPatience& patience,
                                                      Exchange first) {
  collective::GroupReduceMachine::Options options{.exchange = reduce_options(patience, 1),
                                                  .start = std::nullopt};
  // Where nobody is expected to go, whoever is slow is waited for.
  if (!run.lossy) {
    options.exchange.stragglers.initial = options.exchange.stragglers.min = patience.max;
  }
  if (first == 0) options.start = patience.start;
  return options;
}

std::unique_ptr<collective::Reducer> make_reducer(const NetworkRun& run, const ProtocolPlace& place,
                                                  const ProtocolPatience& patience,
                                                  const ProtocolStart& start, TimePoint now) {
  const Progress next{start.support.backed, start.exchange};
  if (run.plan.group > 0) {
    const collective::GroupDraw draw{.seed = run.plan.seed,
                                     .members = static_cast<Member>(place.names.size()),
                                     .size = run.plan.group};
    return std::make_unique<collective::GroupReduceMachine>(
        group_options(run, patience, start.exchange), place.epoch, draw, place.self, place.names,
        next, place.absent, start.support, now);
  }
  auto machine = std::make_unique<collective::AllReduceMachine>(
      reduce_options(patience, start.exchange), place.epoch, place.self, place.names, next,
      place.absent, start.forgot ? collective::Memory::kNone : collective::Memory::kButForOne);
  const bool continues = start.former && start.former->mean && start.former->names == place.names;
  if (continues) machine->offer(*start.former->mean);
  return machine;
}

}  // namespace

AllReduceProtocol::AllReduceProtocol(const NetworkRun& run, LocalSteps& local,
                                     const ProtocolPlace& place, const ProtocolPatience& patience,
                                     ProtocolStart start, TimePoint now)
    : ProtocolBase(run, local, place, now),
      trained_(start.former && start.former->trained),
      return_every_(patience.max + patience.start),
      machine_(make_reducer(run, place, patience, start, now)),
      algorithm_(take_algorithm(run, self_, start)),
      at_{start.support.backed, start.exchange},
      jumps_(start.run_age, now),
      linked_(names_.size()) {
  if (start.state.empty()) return;
  const auto restored = restore_state(*algorithm_, start.state);
  if (restored) return;
  say(LogLevel::kWarning, "the algorithm's state starts again: " + restored.error().message());
}

void AllReduceProtocol::handle(const training::Begin&) {
  STARLING_CHECK(state_ == State::kIdle);
  if (trained_) {
    reduce();
  } else {
    go_on();
  }
}

std::vector<Member> AllReduceProtocol::neighbours() const {
  std::vector<Member> all;
  for (Member member = 0; member < names_.size(); ++member) {
    if (member != self_) all.push_back(member);
  }
  return all;
}

TrainingProgress AllReduceProtocol::progress() const {
  static constexpr std::array<std::string_view, 7> kStates = {
      "joining", "training", "waiting", "training", "catching-up", "finished", "waiting"};
  auto progress = progress_at(kStates[static_cast<std::size_t>(state_)], at_.exchange);
  progress.heard = heard_;
  progress.expected = static_cast<std::uint32_t>(machine_->members() - 1);
  return progress;
}

std::optional<std::span<const float>> AllReduceProtocol::model() const {
  if (is_computing() || state_ == State::kCopying) return std::nullopt;  // of no exchange yet
  return algorithm_->model();
}

// While a model is being copied, this one is of no exchange.
std::optional<Handover> AllReduceProtocol::hand_over() {
  STARLING_CHECK(!is_computing());
  if (state_ == State::kCopying) return std::nullopt;
  Handover handover{.algorithm = std::move(algorithm_),
                    .exchange = at_.exchange,
                    .trained = state_ == State::kReducing,
                    .names = names_};
  if (auto mean = machine_->backed_mean()) {
    handover.mean = std::make_shared<const collective::EndedExchange>(std::move(*mean));
  }
  return handover;
}

// --- the protocol --------------------------------------------------------------------------------

void AllReduceProtocol::go_on() {
  const std::uint64_t step = schedule_.after(at_.exchange);
  if (step == schedule_.steps) {
    state_ = State::kFinished;
    return act(training::Finished{});
  }
  if (is_leaving_) return;
  const LocalPhase phase = phase_of(at_.exchange);
  state_ = State::kTraining;
  began_ = now_;
  train(
      phase,
      [this, phase] {
        const auto training = local_.training(phase.step);
        return algorithm_->adapt(*training, phase, {.node = self_});
      },
      [this, phase](double loss_sum) { trained(loss_sum, phase); });
}

void AllReduceProtocol::trained(double loss_sum, const LocalPhase& phase) {
  if (!learned(loss_sum, phase)) return;
  work_ = now_ - began_;
  jumps_.trained(work_);
  reduce();
}

void AllReduceProtocol::reduce() {
  const std::span<const float> own = algorithm_->message(0).first;
  const double distance_max = usual_.limit_of_mean(own);
  // To numbers that are none nothing is near.
  if (!std::isfinite(distance_max))
    return act(training::Failed{diverged(phase_of(at_.exchange).step)});
  state_ = State::kReducing;
  tell_machine(collective::Begin{at_, collective::share(std::vector<float>(own.begin(), own.end())),
                                 distance_max});
}

void AllReduceProtocol::perform(collective::Finished& finished) {
  STARLING_CHECK(state_ == State::kReducing && finished.at == at_);
  heard_ = static_cast<std::uint32_t>(
      finished.members.size() -
      static_cast<std::size_t>(std::ranges::count(finished.members, self_)));
  if (heard_ > 0) behind_ = {};
  if (!in_groups()) say_standing(finished.next, finished.members.size());
  next_ = finished.next;
  mean_ = std::move(finished.mean);
  usual_.accepts(self_, mean_.values, algorithm_->message(0).first);  // the machine has judged it
  message_ = {.first = mean_.values};
  inbox_ = {.from = 0, .weight = 1, .message = &message_};
  state_ = State::kMixing;
  compute(
      [this] {
        const Links nobody{.node = self_};
        algorithm_->absorb(nobody, {&inbox_, 1}, {0, run_.initial.size()});
        algorithm_->conclude(nobody, {&inbox_, 1});
      },
      [this] {
        mean_ = {};
        at_ = next_;
        act(training::Advanced{});
      });
}

void AllReduceProtocol::handle(const training::Continue&) {
  // Who cannot know what the others do must not run through the exchanges, which take the least
  // time where nobody is waited for. If more than half of the members take part, the others are no
  // majority, whatever these members have forgotten.
  const bool are_most = 2 * (heard_ + 1) > names_.size();
  const bool apart = in_groups() ? is_minority() || heard_ == 0 : is_minority() && !are_most;
  if (apart) resume_ = began_ + machine_->pace().value_or(Quorum::assumed_pace(work_));
  if (!apart || resume_ <= now_) return go_on();
  state_ = State::kPacing;
}

void AllReduceProtocol::say_standing(const Progress& next, std::size_t members) {
  const bool backed = next.backed == next.exchange;
  if (backed != is_minority()) return;
  if (backed) {
    return say(LogLevel::kInfo, fmt::format("exchange {} had {} of {} members, a quorum",
                                            at_.exchange, members, names_.size()));
  }
  const bool are_most = 2 * members > names_.size();
  say(LogLevel::kWarning,
      fmt::format("exchange {} had {} of {} members, {}, and takes the model of a quorum when it "
                  "meets one; if the others are gone for good, a new roster without them ends this",
                  at_.exchange, members, names_.size(),
                  are_most ? std::string("no quorum of members that were not started again lately: "
                                         "trains on")
                           : fmt::format("no quorum of {}: trains on at the usual pace",
                                         names_.size() / 2 + 1)));
}

// Others have come further without us.
void AllReduceProtocol::perform(collective::CatchUp& catch_up) {
  if (is_leaving_) return;  // what was trained is kept, and no model comes any more
  std::vector<Member> from = donors(catch_up.donors);
  next_ = catch_up.next;
  state_ = State::kCopying;
  if (from.empty()) return not_copied();
  say(LogLevel::kInfo,
      next_.exchange > at_.exchange
          ? fmt::format("the others have come to exchange {} without this peer, which is at "
                        "{}: taking their model",
                        next_.exchange, at_.exchange)
          : fmt::format("a quorum is at exchange {}: taking its model in place of what was "
                        "learned apart, up to exchange {}",
                        next_.exchange, at_.exchange));
  say_too_slow();
  copy_model(std::move(from));
}

void AllReduceProtocol::say_too_slow() {
  if (++behind_.copies == 1) {
    behind_.since = now_;
    behind_.from = next_.exchange;
  }
  const Duration passed = now_ - behind_.since;
  if (behind_.copies < kCopiesInARow || next_.exchange <= behind_.from) return;
  const Duration theirs = passed / static_cast<std::int64_t>(next_.exchange - behind_.from);
  const Duration copy = behind_.took / (behind_.copies - 1);
  // A member that was stopped, or whose donors are silent, copies as often without being slow.
  const bool shows = passed >= kSlowAfter && copy + work_ > theirs;
  if (!shows || !too_slow_.is_due(now_)) return;
  const auto text = [](Duration time) {
    return format_duration(std::chrono::round<std::chrono::milliseconds>(time));
  };
  say(LogLevel::kWarning,
      fmt::format("this peer takes {} to copy a model and {} to train, while the others need "
                  "{} for an exchange: it has taken part in none since they were at exchange "
                  "{}; its link or its training is too slow for this run",
                  text(copy), text(work_), text(theirs), behind_.from));
}

// Where we are ourselves others can be, whatever the age of the run says.
bool AllReduceProtocol::can_be(Progress at) const {
  if (at.exchange > exchanges_ || at.backed > at.exchange) return false;
  const auto limit = jumps_.limit(names_.size(), at_.exchange, now_);
  return !limit || at.exchange <= *limit;
}

// A link may only look whole. A donor that trains gives its model when its local steps are done;
// from then on something of it comes at least as soon as a piece, or as two, since pieces for
// others may go before it. Another is asked sooner: both may send the same part then.
void AllReduceProtocol::copy_model(std::vector<Member> from) {
  const Duration steps = machine_->pace().value_or(work_);
  const Duration piece = machine_->piece_wait();
  copying_since_ = now_;
  act(training::CopyModel{std::move(from),
                          {.silent = steps + 2 * piece, .begins = steps + piece / 3}});
}

// Of these as many as can be reached; of none, any other.
std::vector<Member> AllReduceProtocol::donors(const std::vector<Member>& first) const {
  std::vector<Member> donors;
  for (const Member member : first) {
    if (member != self_ && linked_[member] && donors.size() < kDonorsMax) donors.push_back(member);
  }
  for (Member member = 0; donors.empty() && member < names_.size(); ++member) {
    if (linked_[member]) donors.push_back(member);
  }
  return donors;
}

// Who ended the run among a minority takes part again where a majority still trains, and keeps it
// waiting for nothing otherwise. Two donors tell how far they are, where there are two.
void AllReduceProtocol::come_back(Member from, Progress theirs) {
  if (state_ != State::kFinished || !is_minority() || is_leaving_) return;
  if (theirs.backed <= at_.backed) return;
  if (now_ < return_again_) return;
  return_again_ = now_ + return_every_;
  std::vector<Member> others = {from};
  for (Member member = 0; member < names_.size(); ++member) {
    if (member != from) others.push_back(member);
  }
  state_ = State::kCopying;
  returning_ = true;
  next_ = at_;
  copy_model(donors(others));
}

void AllReduceProtocol::handle(const training::Copied& copied) {
  STARLING_CHECK(state_ == State::kCopying);
  const Progress progress = copied.progress;
  if (!returning_) behind_.took += now_ - copying_since_;
  if (std::exchange(returning_, false)) {
    const bool is_further = progress.backed > at_.backed && can_be(progress);
    if (!is_further) {
      state_ = State::kFinished;
      return;
    }
    say(LogLevel::kInfo,
        fmt::format("a quorum is still at exchange {}: goes on from its model in place of "
                    "what was learned apart",
                    progress.exchange));
    next_ = progress;
  } else if (progress <= at_) {
    return keep_own("the model that came is no further: goes on with its own");
  }
  algorithm_->restart(copied.model);
  local_.forget_momentum();
  // Meanwhile they went on; how far is believed as far as it can be.
  const bool counts = can_be(progress) && machine_->is_explainable(progress);
  at_ = counts ? progress : next_;
  tell_machine(collective::Copied{});
  go_on();
}

void AllReduceProtocol::not_copied() {
  if (std::exchange(returning_, false)) {
    state_ = State::kFinished;
    return;
  }
  keep_own("no peer sent a model: continues with its own");
}

// The local steps are done; where the others are this peer can only be with their model.
void AllReduceProtocol::keep_own(std::string why) {
  say(LogLevel::kWarning, std::move(why));
  reduce();
}

// --- the machine --------------------------------------------------------------------------------

void AllReduceProtocol::tell_machine(collective::Event event) {
  for (collective::Action& action : machine_->on(std::move(event), now_)) {
    std::visit([this](auto& a) { perform(a); }, action);
  }
}

void AllReduceProtocol::perform(collective::SendPiece& send) {
  const ReducePiece piece{.exchange = send.at.exchange,
                          .attempt = send.attempt,
                          .place = send.place,
                          .floats = send.floats.values.size()};
  act(peer::SendTransfer{send.to,
                         {.content = piece, .support = {.backed = send.at.backed}},
                         SharedBytes(send.floats.owner, as_bytes(send.floats.values))});
}

// --- what comes ---------------------------------------------------------------------------------

Result<void> AllReduceProtocol::check(Member from, const VectorTransfer& transfer) const {
  const auto* const piece = std::get_if<ReducePiece>(&transfer.content);
  if (piece == nullptr) return rejected("not-wanted", "this transfer is of no use here now");
  if (piece->floats > run_.initial.size()) {
    return rejected("wrong-vectors",
                    fmt::format("{} announces vectors that are not of this model", names_[from]));
  }
  if (!machine_->takes_part(from, {transfer.support.backed, piece->exchange})) {
    return rejected("not-wanted", "a piece of a group that this peer or its sender is not in");
  }
  return {};
}

void AllReduceProtocol::handle(const peer::TransferReceived& came) {
  const auto& [from, whole] = came;
  const auto* const content = std::get_if<ReducePiece>(&whole.transfer.content);
  if (content == nullptr) return;  // an earlier session took it
  const ReducePiece& piece = *content;
  // Numbers or not: the machine judges them, and finds out who sent them.
  const std::span<const float> values(reinterpret_cast<const float*>(whole.data.view().data()),
                                      piece.floats);
  tell_machine(collective::PieceReceived{
      from, whole.transfer.epoch, Progress{whole.transfer.support.backed, piece.exchange},
      piece.attempt, piece.place, Floats{whole.data.owner(), values}});
}

void AllReduceProtocol::handle(const peer::MessageReceived& came) {
  const auto* const note = std::get_if<protocol::ReduceNote>(&came.envelope.message);
  if (note == nullptr || note->epoch != epoch_) return;
  if (!is_possible(came.from, note->at.exchange) || !can_be(note->at)) return;
  come_back(came.from, note->at);
  tell_machine(collective::NoteReceived{came.from, *note});
}

void AllReduceProtocol::handle(const peer::LinkUp& up) {
  const auto& [from, hello, is_new] = up;
  linked_[from] = true;
  const bool says_where =
      is_possible(from, hello.exchange) && hello.begun && can_be(progress_of(hello));
  if (says_where) come_back(from, progress_of(hello));
  tell_machine(collective::LinkUp{
      from, says_where ? std::optional(progress_of(hello)) : std::nullopt, is_new});
}

void AllReduceProtocol::handle(const peer::LinkDown& down) {
  linked_[down.member] = false;
  tell_machine(collective::LinkDown{down.member});
}

void AllReduceProtocol::handle(const training::Reach& reach) {
  const auto& [member, reachable] = reach;
  // Word of a suspicion, or of its end, changes nothing here: nobody was heard by it.
  const bool changed =
      reachable ? unreachable_.erase(member) > 0 : unreachable_.insert(member).second;
  if (!changed) return;
  if (!reachable) {
    tell_machine(collective::LinkDown{member});
  } else if (linked_[member]) {  // a link that was whole all the time does not say it again
    tell_machine(collective::LinkUp{member, std::nullopt});
  }
}

void AllReduceProtocol::handle(const peer::Tick&) {
  const auto due = machine_->next_deadline();
  if (due && *due <= now_) tell_machine(collective::Tick{});
  if (state_ == State::kPacing && now_ >= resume_) go_on();
}

std::optional<TimePoint> AllReduceProtocol::next_deadline() const {
  std::optional<TimePoint> due = machine_->next_deadline();
  const auto sooner = [&](TimePoint time) { due = std::min(due.value_or(time), time); };
  if (state_ == State::kPacing && !is_leaving_) sooner(resume_);
  return due;
}

}  // namespace starling::gossip

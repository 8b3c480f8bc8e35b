// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "gossip/peer/held_roster.h"

namespace starling::gossip {

using protocol::PeerHello;

PeerMachine::PeerMachine(PeerOptions options, const identity::IdentityDirectory& self,
                         MakeLocalSteps make_local_steps)
    : options_(std::move(options)),
      self_(self),
      make_local_steps_(std::move(make_local_steps)),
      rng_({.seed = options_.seed,
            .purpose = Purpose::kBackoff,
            .node = hash_name(self.identity().name)}),
      pending_checkpoint_(options_.checkpoint_every) {}

// A trainer's task would keep its thread for as long as it may take.
PeerMachine::~PeerMachine() {
  if (session_) session_->cancel_training();
}

std::vector<peer::Action> PeerMachine::on(peer::Event event, TimePoint now, WallTime wall) {
  now_ = now;
  wall_ = wall;
  std::visit([this](auto& happened) { handle(happened); }, event);
  return std::exchange(actions_, {});
}

RosterClock PeerMachine::clock_at(TimePoint now, WallTime wall) const {
  return {.now = now, .wall = wall, .authenticated = self_.last_authenticated()};
}

// Unlike what a session says, no problem of the run.
void PeerMachine::say(LogLevel level, std::string line) { act(peer::Say{level, std::move(line)}); }

// --- the roster ---------------------------------------------------------------------------------

void PeerMachine::handle(peer::RosterReceived& came) {
  if (closing_until_) return;
  const identity::Roster& roster = came.roster->roster();
  if (const auto checked = roster_.check(*came.roster, came.source, clock()); !checked) {
    if (checked.error().code() != "roster-old") refuse_roster(checked.error(), came.from);
    return;
  }
  const bool has_failed = failure_ && roster_->epoch == roster.epoch;
  const bool same_epoch =
      (session_ && session_->epoch() == roster.epoch) || has_failed || preparing_ == roster.epoch;
  if (std::exchange(expired_, false)) problem_ = has_failed ? failure_->message() : "";
  if (!same_epoch) leave_session();
  if (!roster_ || roster_->epoch != roster.epoch) refused_rosters_.clear();
  roster_.take(came.roster, came.source, clock());
  if (came.was_kept) promises_.run_had_begun(roster.run_identity());
  act(peer::KeepRoster{came.roster});
  act(peer::SetRoster{came.roster});
  if (!same_epoch) unreached_.forget_all();
  renewal_ = same_epoch ? Renewal::kSameEpoch : Renewal::kNextEpoch;
}

void PeerMachine::handle(peer::LinksRenewed& renewed) {
  up_ = {renewed.up.begin(), renewed.up.end()};
  // Neighbours without a link to the issuer hear of it here.
  greet_all();
  switch (std::exchange(renewal_, Renewal::kDone)) {
    case Renewal::kDone:
    case Renewal::kNobody:
      return;
    case Renewal::kSameEpoch:
      return keep_links();
    case Renewal::kNextEpoch:
      if (!is_computing()) return adopt();
      return cancel_useless_task();
  }
}

// From here on members are those of the next epoch.
void PeerMachine::leave_session() {
  switching_ = true;
  if (session_) session_->leave(true);
}

bool PeerMachine::is_member() const { return gossip::is_member(*roster_, self_); }

// Whether a thread is at work for the roster's run, or for an earlier one.
bool PeerMachine::is_computing() const {
  return preparing_ || (session_ && session_->is_computing());
}

// What the roster in force means from here on; only while nothing is computed, so that what was
// learnt goes on. See Handover for a local phase that is still to be mixed.
void PeerMachine::adopt() {
  const identity::Roster& roster = *roster_;
  if (session_) {
    former_.reset();
    const bool run_ends = roster.stopped() || roster.run_identity() != session_->run_id();
    keep_checkpoint(run_ends);
    send_report();  // the counts of steps and losses end with the session
    if (!run_ends && !session_->holds_back_training()) {
      former_ = Former{.run_id = session_->run_id(),
                       .settings = session_->settings(),
                       .local = session_->local(),
                       .support = session_->support(),
                       .handover = session_->hand_over()};
    }
  }
  end_session();
  switching_ = false;
  if (closing_until_) return;
  if (expired_) {
    problem_ = roster_.expiry();
    return;
  }
  failure_.reset();
  problem_.clear();
  deafness_.clear();
  if (roster_.is_expired(clock())) return expire();
  if (roster.stopped()) {
    return say(LogLevel::kInfo, fmt::format("run {} was ended by its issuer", roster.run));
  }
  const auto self = roster.find(self_.identity().name);
  say(LogLevel::kInfo,
      fmt::format("roster {} of run {}: {} until {}{}", roster.epoch, roster.run,
                  counted(roster.members.size(), "member"), format_rfc3339(roster.expires),
                  stands_by() ? ", should the coordinator be gone" : ""));
  if (self && !roster.members[*self].address.empty() && !options_.listens) {
    deafness_ = fmt::format(
        "others dial this device at {}, as the roster says, but it does not listen: set "
        "gossip.listen",
        roster.members[*self].address);
    say(LogLevel::kWarning, deafness_);
  }
  if (!self || !is_member()) {
    problem_ = fmt::format(
        "this device is not a member of run {}: its operator sees why with 'starling-coordinator "
        "gossip show'",
        roster.run);
    say(LogLevel::kWarning, problem_);
  } else if (!stands_by()) {
    prepare();
  }
}

void PeerMachine::expire() {
  problem_ = roster_.expiry();
  say(LogLevel::kWarning, problem_ + ": no peer is a member any more; waiting for its issuer");
  expired_ = true;
  leave_session();
  up_.clear();
  unreached_.forget_all();
  act(peer::SetRoster{nullptr});
  renewal_ = Renewal::kNobody;
  if (!is_computing()) return adopt();
  cancel_useless_task();
}

// The clock was wrong for a while.
void PeerMachine::hold_again() {
  say(LogLevel::kInfo, "the roster holds by this device's clock, which was ahead: goes on");
  expired_ = false;
  problem_ = failure_ ? failure_->message() : "";
  act(peer::SetRoster{roster_.whole()});
  renewal_ = failure_ ? Renewal::kSameEpoch : Renewal::kNextEpoch;
}

// A trainer's task may take long, and be repeated without end: a new roster does not wait for one
// whose result it makes useless.
void PeerMachine::cancel_useless_task() {
  if (preparing_) act(peer::CancelPreparation{});
  if (!session_) return;
  const bool run_goes_on =
      !expired_ && !roster_->stopped() && roster_->run_identity() == session_->run_id();
  if (!run_goes_on || trainer_fails_) session_->cancel_training();
}

void PeerMachine::take(Member from, const protocol::RosterPart& part, ByteView piece) {
  const auto taken = assemblers_[from].take(part, piece, roster_.get());
  if (taken.ask) act(peer::Send{from, *taken.ask});
  if (!taken.whole) return;
  const auto roster = verify_roster(*taken.whole, self_);
  if (roster) {
    peer::RosterReceived came{std::make_shared<const identity::SignedRoster>(*roster),
                              peer::Source::kOther, false, from};
    handle(came);
  } else {
    refuse_roster(roster.error(), from);
  }
}

// Whoever holds it sends it again with every greeting: one line of each member is enough, whatever
// kinds of garbage it sends.
void PeerMachine::refuse_roster(const Error& why, std::optional<Member> from) {
  const bool is_known = from && roster_ && *from < roster_->members.size();
  const std::string name = is_known ? roster_->members[*from].name : "";
  if (!refused_rosters_.insert(is_known ? name : why.message()).second) return;
  say(LogLevel::kWarning, fmt::format("a roster {}is not taken: {}",
                                      is_known ? "that " + name + " sent " : "", why.message()));
}

// --- while the coordinator is gone --------------------------------------------------------------

std::optional<FallbackTerms> PeerMachine::standby(TimePoint now, WallTime wall) const {
  if (!roster_ || roster_.is_expired(clock_at(now, wall)) || !is_member()) return std::nullopt;
  const auto terms = read_fallback(roster_->settings);
  return terms ? *terms : std::nullopt;
}

void PeerMachine::handle(peer::BeginFallback& begun) {
  const auto terms = standby(now_, wall_);
  if (!terms || session_ || closing_until_) return;
  const fallback::Trained& from = begun.begin.from;
  const auto* floats = reinterpret_cast<const float*>(from.model.view().data());
  const std::string run = roster_->run_identity();
  former_.reset();
  start_patience_.restart();
  failure_.reset();
  latest_ = std::make_shared<const Checkpoint>(
      Checkpoint{run, from.exchanges, {floats, floats + from.model.size() / sizeof(float)}});
  fallback_ = FallbackRun{.run_id = run,
                          .start_patience = terms->after,
                          .steps_before = begun.begin.steps_before,
                          .pace = begun.begin.pace,
                          .before = from};
  if (!preparing_) prepare();
}

bool PeerMachine::stands_by() const {
  return is_fallback(roster_->settings) &&
         (!fallback_ || fallback_->run_id != roster_->run_identity());
}

bool PeerMachine::holds_fallback() const {
  return fallback_ && latest_ && latest_->run == fallback_->run_id;
}

std::optional<fallback::Trained> PeerMachine::gossiped() const {
  if (!holds_fallback()) return std::nullopt;
  return fallback_->trained(latest_->model);
}

void PeerMachine::handle(peer::EndFallback&) {
  const bool had_begun = holds_fallback();
  if (std::exchange(fallback_, std::nullopt) && preparing_) {
    act(peer::CancelPreparation{});
    preparation_useless_ = true;
  }
  if (!had_begun) return;
  end_session();
  // Peers that heard of the coordinator earlier only seemed dead.
  if (ended_) ended_->reachable.reset();
  latest_.reset();
  keep_links();
  if (switching_ && !is_computing()) adopt();
}

// --- an epoch's session -------------------------------------------------------------------------

void PeerMachine::prepare() {
  preparing_ = roster_->epoch;
  const bool has_model = latest_ && latest_->run == roster_->run_identity();
  act(peer::Prepare{.roster = roster_.whole(),
                    .held = has_model ? latest_->model.size() : 0,
                    .wants_checkpoint = !latest_});
}

void PeerMachine::handle(peer::Prepared& prepared) {
  preparing_.reset();
  const bool is_useless = std::exchange(preparation_useless_, false);
  if (closing_until_) return finish_closing();
  if (switching_ || prepared.epoch != roster_->epoch) return adopt();
  if (is_useless) return stands_by() ? void() : prepare();  // another fallback began meanwhile
  trainer_fails_ = false;
  problem_.clear();
  if (!latest_ && prepared.kept) {
    latest_ = std::make_shared<const Checkpoint>(std::move(*prepared.kept));
  }
  if (!prepared.run) return fail(prepared.run.error());
  begin_session(std::move(*prepared.run));
}

// The local phase that waits to be mixed, the algorithm's state and the order of batches continue
// in the next epoch. What an algorithm shares with the members starts again (Algorithm::regroup).
void PeerMachine::begin_session(NetworkRun run) {
  const identity::Roster& roster = *roster_;
  const auto self = static_cast<Member>(*roster.find(self_.identity().name));
  if (fallback_ && latest_->model.size() != run.initial.size()) {
    return fail(rejected("wrong-vectors", "the model that is held is not of the roster's run"));
  }
  ProtocolStart start = start_with(latest_.get(), roster, run, self);
  start.incarnation = rng_.next_u32() | 1U;
  start.run_age = roster_.run_age(clock());
  if (start.exchange > 0) {
    say(LogLevel::kInfo, fmt::format("goes on from exchange {}", start.exchange));
  }
  std::optional<Former> former = std::exchange(former_, std::nullopt);
  const bool continues = former && former->run_id == roster.run_identity() &&
                         former->settings == lasting_settings(roster.settings);
  if (continues && former->handover) {
    start.exchange = former->handover->exchange;
    start.support = former->support;
    start.state.clear();
    start.former = std::make_shared<Handover>(std::move(*former->handover));
  }
  start.forgot = !promises_.session_begins(roster.run_identity(), roster.epoch,
                                           {start.support.backed, start.exchange});
  const auto pace = fallback_ ? std::optional(fallback_->pace) : std::nullopt;
  std::shared_ptr<LocalSteps> local;
  if (continues) {
    local = former->local;
    local->resume();
  } else {
    const std::uint64_t before = fallback_ ? fallback_->steps_before : 0;
    local =
        make_local_steps_(run, self, run.options.schedule().after(start.exchange) + before, pace);
  }
  const ProtocolPatience patience{
      .min = options_.patience_min,
      .max = options_.patience_max,
      .start = start_patience_.begin_session(
          roster.run_identity(), options_.patience_min,
          fallback_ ? fallback_->start_patience : options_.start_patience, now_)};
  const Rng probes({.seed = options_.seed, .purpose = Purpose::kBackoff, .node = rng_.next_u64()});
  session_ = std::make_shared<EpochSession>(
      EpochSession::Setup{
          .roster = roster,
          .self = self,
          .run = std::move(run),
          .local = std::move(local),
          .start = std::move(start),
          .absent = ended_ ? ended_->absent(roster, self_.identity().name) : std::set<Member>(),
          .patience = patience,
          .membership = options_.membership,
          .rng = probes,
          .checkpoint_every = options_.checkpoint_every,
          .pace = pace},
      up_, now_);
  act(peer::LimitMessages{messages_of_use(session_->run())});
  keep_links();
  report_at_ = now_;
  tell_session(EpochSession::Begin{});
  // On links that outlast an epoch both sides say where they are now.
  for (const auto& [member, theirs] : up_) {
    if (!session_) return;
    act(peer::Send{member, hello()});
    act(peer::Send{member, issuer::ask_for_newer(roster_.get())});
    tell_session(EpochSession::EarlierHello{member, theirs});
  }
}

void PeerMachine::end_session() {
  assemblers_.clear();  // of members that may have other places from now on
  if (!session_) return;
  if (session_->is_computing()) session_->cancel_training();
  const TrainingProtocol& training = session_->training();
  const TrainingProgress progress = training.progress();
  promises_.session_ended(session_->run_id(), {session_->support().backed, progress.exchange},
                          training.remembers());
  counts_.session_ended(progress);
  ended_ = EndedSession{.run_id = session_->run_id(),
                        .run_name = session_->run_name(),
                        .progress = progress,
                        .reachable = session_->who_is_there()};
  session_.reset();
}

// Gives the session an event, and passes on what came of it.
void PeerMachine::tell_session(EpochSession::Event event) {
  const bool was_minority = session_->support().minority;
  EpochSession::Outcome outcome = session_->on(std::move(event), now_);
  if (outcome.mixed) {
    latest_ = outcome.mixed->checkpoint;
    if (fallback_) fallback_->mixed = outcome.mixed->progress;
  }
  if (outcome.advanced) trainer_fails_ = false;
  // Where somebody stays away for good, not all are ever heard again.
  const bool has_quorum_again = was_minority && !session_->support().minority;
  if (outcome.all_heard || has_quorum_again) problem_.clear();
  if (outcome.finished) finished();
  for (peer::Action& action : outcome.actions) {
    if (const auto* said = std::get_if<peer::Say>(&action)) {
      if (said->level >= LogLevel::kWarning && !said->lasts) problem_ = said->line;
    } else if (auto* compute = std::get_if<peer::Compute>(&action)) {
      compute->session = session_;
    } else if (std::holds_alternative<peer::HandIn>(action)) {
      send_report();  // what is said of this model is to be known when it is there
    }
    if (auto* checkpoint = std::get_if<peer::KeepCheckpoint>(&action)) {
      act(pending_checkpoint_.keep(std::move(*checkpoint)));
    } else {
      act(std::move(action));
    }
  }
  if (outcome.finished) send_report();
  if (outcome.failure) fail(*outcome.failure);
}

void PeerMachine::handle(peer::Computed& computed) {
  if (computed.session != session_ || !session_) return;
  start_patience_.computed(now_ - session_->computing_since());
  tell_session(std::move(computed));
  if (is_computing()) return;
  if (switching_) adopt();
  if (closing_until_) finish_closing();
}

void PeerMachine::handle(peer::TrainerFailed& failed) {
  trainer_fails_ = true;
  problem_ = failed.line;
  say(LogLevel::kWarning, problem_);
  if (switching_) cancel_useless_task();
}

void PeerMachine::finished() {
  problem_.clear();
  const TrainingProgress progress = session_->training().progress();
  say(LogLevel::kInfo,
      "the run is finished: " + counted(session_->run().options.run.steps, "step"));
  const std::uint64_t alone = progress.loss_steps;
  if (counts_.has_heard(session_->run_id()) || alone == 0 ||
      session_->training().neighbours().empty()) {
    return;
  }
  problem_ = fmt::format(
      "no neighbour was ever heard: {} on this device's own data alone; check the members' "
      "addresses and firewalls",
      counted(alone, "step"));
  say(LogLevel::kWarning, problem_);
}

void PeerMachine::fail(const Error& error) {
  if (switching_ && session_ && session_->is_external()) {  // cancelled for the next roster
    keep_latest(true);
    return end_session();
  }
  problem_ = error.message();
  say(LogLevel::kError, "the run cannot go on: " + problem_);
  failure_ = error;
  failed_size_ = session_ ? session_->greeting().elements : 0;
  // What the session has just asked for, where a greeting of before ends it as it begins.
  std::erase_if(actions_, [this](const peer::Action& action) {
    const auto* const compute = std::get_if<peer::Compute>(&action);
    return compute != nullptr && compute->session == session_;
  });
  former_.reset();
  end_session();
  send_report();
  if (switching_) return;
  greet_all();  // nobody need wait for it
}

void PeerMachine::keep_checkpoint(bool model_too) {
  if (fallback_) return;
  auto now = session_->checkpoint();
  if (!now) return;
  latest_ = std::make_shared<const Checkpoint>(std::move(*now));
  keep_latest(model_too);
}

// Where it is of the session's run: a session may end while its model is being computed.
void PeerMachine::keep_latest(bool model_too) {
  if (!latest_ || latest_->run != session_->run_id()) return;
  act(pending_checkpoint_.keep({latest_, session_->run().layout(), model_too}));
}

void PeerMachine::handle(peer::CheckpointKept& answer) {
  if (auto line = pending_checkpoint_.answered(answer, now_, closed_)) act(std::move(*line));
}

// --- links --------------------------------------------------------------------------------------

PeerHello PeerMachine::hello() const {
  // Not of a run that is about to be left.
  const bool is_current = roster_ && session_ && session_->epoch() == roster_->epoch;
  PeerHello hello = is_current ? session_->greeting() : PeerHello{};
  hello.software = options_.software;
  if (roster_) hello.epoch = roster_->epoch;
  if (failure_ && !switching_) {
    hello.refusal = printable(failure_->message(), kRefusalBytes);
    hello.elements = failed_size_;  // others that hear it only now count it among those that differ
  }
  return hello;
}

void PeerMachine::greet_all() {
  for (const auto& [member, theirs] : up_) act(peer::Send{member, hello()});
}

void PeerMachine::keep_links() {
  const auto neighbours = session_ ? session_->training().neighbours() : std::vector<Member>();
  // Where everybody watches everybody, all links are of use.
  act(peer::KeepLinks{.members = {neighbours.begin(), neighbours.end()},
                      .ends_idle = session_ && session_->run().sparse});
}

void PeerMachine::handle(peer::LinkUp& up) {
  if (renewal_ != Renewal::kDone || !roster_) return;
  up_[up.member] = up.hello;
  unreached_.reached(up.member);
  act(peer::Send{up.member, issuer::ask_for_newer(roster_.get())});
  if (!hears_others() || up.hello.epoch != roster_->epoch) return;
  tell_session(std::move(up));
}

// Over a link that is up: as it comes to an epoch, or takes part no more.
void PeerMachine::greeted_again(Member from, const PeerHello& hello) {
  if (renewal_ != Renewal::kDone || !roster_) return;
  PeerHello& known = up_[from];
  if (hello.epoch != known.epoch) act(peer::Send{from, issuer::ask_for_newer(roster_.get())});
  known = hello;
  if (!hears_others() || hello.epoch != roster_->epoch) return;
  tell_session(EpochSession::GreetedAgain{from, hello});
}

void PeerMachine::handle(peer::LinkDown& down) {
  if (renewal_ != Renewal::kDone) return;
  up_.erase(down.member);
  assemblers_.erase(down.member);
  if (!hears_others()) return;
  const auto is_neighbour = [&] {
    const auto neighbours = session_->training().neighbours();
    return std::ranges::find(neighbours, down.member) != neighbours.end();
  };
  if (down.why && is_neighbour()) unreached_.failed(down.member, *down.why, now_);
  tell_session(std::move(down));
}

std::string PeerMachine::problem() const {
  const bool hears_nobody = session_ && session_->training().progress().heard == 0;
  std::string problem = session_ ? deafness_ : "";  // its own fault first
  const std::string said = unreached_.problem_beside(problem_, hears_nobody);
  const std::string of_others = session_ ? session_->problem() : "";
  for (const std::string& more : {said, of_others, pending_checkpoint_.problem()}) {
    if (!more.empty()) problem += (problem.empty() ? "" : "; ") + more;
  }
  return problem;
}

void PeerMachine::handle(peer::MessageReceived& came) {
  const protocol::Message& message = came.envelope.message;
  if (const auto* hello = std::get_if<PeerHello>(&message)) {
    return greeted_again(came.from, *hello);
  }
  if (const auto* ask = std::get_if<protocol::RosterAsk>(&message)) {
    if (!roster_) return;
    for (auto& part : issuer::roster_parts(*roster_.whole(), *ask)) {
      act(peer::Send{came.from, std::move(part.message), std::move(part.payload)});
    }
  } else if (const auto* part = std::get_if<protocol::RosterPart>(&message)) {
    take(came.from, *part, came.envelope.payload.view());
  } else if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    act(peer::Send{came.from, protocol::Pong{ping->nonce}});
  } else if (hears_others()) {
    tell_session(std::move(came));
  }
}

Result<void> PeerMachine::check(Member from, const protocol::VectorTransfer& transfer) const {
  if (hears_others()) return session_->check(from, transfer);
  return rejected("other-epoch", "this peer is not in that epoch");
}

void PeerMachine::handle(peer::TransferProgressed& event) {
  if (hears_others()) tell_session(event);
}

void PeerMachine::handle(peer::TransferRefused& refused) {
  if (hears_others()) tell_session(refused);
}

void PeerMachine::handle(peer::TransferReceived& came) {
  if (!hears_others() || came.whole.transfer.epoch != session_->epoch()) return;
  counts_.message_arrived(session_->run_id());
  tell_session(std::move(came));
}

// --- time ---------------------------------------------------------------------------------------

void PeerMachine::handle(peer::Tick&) {
  if (closing_until_) {
    if (now_ >= *closing_until_) finish_closing();
    return;
  }
  if (!roster_) return;
  if (roster_.is_expired(clock()) != expired_) expired_ ? hold_again() : expire();
  if (hears_others()) tell_session(peer::Tick{});
  const auto retry_at = pending_checkpoint_.retry_at();
  if (retry_at && now_ >= *retry_at) act(pending_checkpoint_.retry());
  for (std::string& line : unreached_.lines(now_)) say(LogLevel::kWarning, std::move(line));
  if (now_ >= report_at_) send_report();
}

std::optional<TimePoint> PeerMachine::next_deadline() const {
  if (closed_ || (!roster_ && !closing_until_)) return std::nullopt;
  if (closing_until_) return closing_until_;
  TimePoint next = report_at_;
  if (hears_others()) next = std::min(next, session_->next_deadline().value_or(next));
  return std::min(next, pending_checkpoint_.retry_at().value_or(next));
}

protocol::PeerReport PeerMachine::report(TimePoint now, WallTime wall) const {
  protocol::PeerReport report;
  if (roster_) report.epoch = roster_->epoch;
  report.linked = static_cast<std::uint32_t>(up_.size()) + 1;
  report.problem = problem();
  const bool begins = preparing_ || (renewal_ == Renewal::kNextEpoch && is_member());
  report.state = !roster_ || begins   ? "joining"
                 : standby(now, wall) ? "fallback-roster"
                                      : "refused";
  if (roster_ && roster_->stopped()) report.state = "ended";
  if (!session_) {
    counts_.add_to(report, nullptr);
    const bool is_of_run = ended_ && ended_->is_of_run(*roster_);
    if (is_of_run || (ended_ && roster_->stopped())) {
      report.exchange = ended_->progress.exchange;
      report.step = ended_->progress.step;
    }
    // A roster that stops one network also ends another that was signed elsewhere.
    if (ended_ && roster_->stopped() && !is_of_run && report.problem.empty()) {
      report.problem =
          fmt::format("it ended in step {} of run {}", ended_->progress.step, ended_->run_name);
    }
    return report;
  }
  const TrainingProgress progress = session_->training().progress();
  counts_.add_to(report, &progress);
  report.exchange = progress.exchange;
  report.step = progress.step;
  report.state = progress.state;
  report.neighbours = progress.heard;
  report.expected = progress.expected;
  report.reachable = static_cast<std::uint32_t>(session_->reachable());
  return report;
}

void PeerMachine::send_report() {
  report_at_ = now_ + options_.report_every;
  act(peer::Report{report(now_, wall_)});
  if (session_) counts_.reported(session_->training().progress());
}

// --- the end ------------------------------------------------------------------------------------

void PeerMachine::handle(peer::Close&) {
  closing_until_ = now_ + kLastComputation;
  if (session_) session_->leave(false);
  if (preparing_) act(peer::CancelPreparation{});
  if (!is_computing()) finish_closing();
}

// What was being computed has come to its end, so that the checkpoint is of now, or takes too long.
void PeerMachine::finish_closing() {
  if (std::exchange(closed_, true)) return;
  if (session_) {
    keep_checkpoint(is_finished());
    if (session_->is_external() && is_computing()) keep_latest(false);
    session_->cancel_training();
    session_.reset();
  } else if (pending_checkpoint_.retry_at()) {
    act(pending_checkpoint_.retry());
  }
  act(peer::Closed{});
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/epoch_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/counted.h"
#include "core/base/list_some.h"
#include "gossip/peer/held_roster.h"
#include "gossip/peer/usual_distance.h"

namespace starling::gossip {

using protocol::ModelColumns;
using protocol::PeerHello;
using protocol::VectorTransfer;

namespace {

// Asks of one member for columns of the model, that wait until it may be read.
constexpr std::ptrdiff_t kAsksMax = 4;

}  // namespace

Settings lasting_settings(Settings settings) {
  std::erase_if(settings, [](const auto& setting) { return setting.first == "topology.nodes"; });
  return settings;
}

EpochSession::EpochSession(Setup setup, const UpLinks& up, TimePoint now)
    : epoch_(setup.roster.epoch),
      run_id_(setup.roster.run_identity()),
      run_name_(setup.roster.run),
      settings_(lasting_settings(setup.roster.settings)),
      self_(setup.self),
      names_(names_of(setup.roster)),
      run_(std::move(setup.run)),
      local_(std::move(setup.local)),
      up_(up),
      checkpoint_every_(setup.checkpoint_every),
      pace_(setup.pace),
      now_(now),
      silent_(setup.absent),
      apart_(run_.initial.size(), names_),
      copy_patience_(setup.patience.max),
      copies_({.lag = run_.spread}),
      handed_in_at_(run_.options.schedule().after(setup.start.exchange) /
                    run_.options.evaluate_every()),
      checkpoint_at_(now + setup.checkpoint_every) {
  ProtocolPlace place{
      .epoch = epoch_, .self = self_, .names = names_, .absent = std::move(setup.absent)};
  training_ =
      make_protocol(run_, *local_, std::move(place), setup.patience, std::move(setup.start), now);
  const auto members = static_cast<Member>(names_.size());
  std::optional<membership::Overlay> overlay;
  if (run_.sparse) overlay.emplace(self_, names_, run_id_, training_->neighbours());
  members_ = std::make_unique<membership::SwimMachine>(setup.membership, epoch_, self_, members,
                                                       setup.rng, now, std::move(overlay));
}

EpochSession::Outcome EpochSession::on(Event event, TimePoint now) {
  now_ = now;
  std::visit([this](auto& happened) { handle(happened); }, event);
  return std::exchange(outcome_, {});
}

// --- what comes ---------------------------------------------------------------------------------

void EpochSession::handle(const Begin&) { tell_training(training::Begin{}); }

// The link of an absent member may only look whole, so that member has to speak first. Who came to
// this epoch before this peer does not greet again: what it said holds.
void EpochSession::handle(EarlierHello& earlier) {
  PeerHello& hello = earlier.hello;
  if (hello.epoch != epoch_) {
    if (silent_.contains(earlier.member)) return;
    hello.epoch = epoch_;
    hello.begun = false;
    hello.elements = 0;
    hello.refusal.clear();
  } else {
    greeted_[earlier.member] = hello.elements != 0;
  }
  greeted(earlier.member, hello, true);
}

void EpochSession::handle(const peer::LinkUp& up) {
  greeted_[up.member] = up.hello.elements != 0;
  greeted(up.member, up.hello, true);
}

// The first one in this epoch, and the first one that says of its model: before, it was about to
// begin. Later ones say whether it takes part, and are no sign of life: who only greets must not be
// waited for each time.
void EpochSession::handle(const GreetedAgain& again) {
  const auto& [member, hello] = again;
  const auto [known, is_first] = greeted_.try_emplace(member, false);
  const bool says_more = hello.elements != 0 && !std::exchange(known->second, true);
  greeted(member, hello, is_first || says_more);
}

// `is_met`: over a new link, or in a new epoch.
void EpochSession::greeted(Member member, const PeerHello& hello, bool is_met) {
  if (is_met) {
    heard(member);
    no_donors_.erase(member);
    if (const auto unsent = unsent_.extract(member)) act(peer::Send{member, unsent.mapped()});
  }
  ApartMembers::Greeted greeted = apart_.greeted(member, hello);
  if (greeted.line) {
    act(peer::Say{.level = LogLevel::kWarning, .line = std::move(*greeted.line), .lasts = true});
  }
  if (greeted.change == ApartMembers::Change::kLeft) set_apart(member);
  if (apart_.contains(member)) return refuse_if_alone(apart_.other_size(member));
  const bool came_back = greeted.change == ApartMembers::Change::kCameBack;
  if (came_back) {
    tell_training(
        training::Reach{member, members_->state(member) != protocol::SwimNews::State::kDead});
  }
  copies_.greeted(member, hello, training_->progress().exchange);
  tell_training(peer::LinkUp{member, hello, is_met || came_back});
}

// It was met, so that it is not waited for as one that is still starting, and is gone.
void EpochSession::set_apart(Member member) {
  tell_training(peer::LinkUp{member, {.epoch = epoch_, .begun = true}});
  lose(member);
  tell_training(training::Reach{member, false});
  continue_copy();
}

// The word of a few does not end the run here: of the neighbours and this device together more than
// half must have the same other model. Of two members each has only the other's word, and both
// would train alone; unless the other one has changed.
void EpochSession::refuse_if_alone(std::uint64_t size_of_others) {
  if (size_of_others == 0 || training_->is_finished()) return;
  const std::vector<Member> neighbours = training_->neighbours();
  std::vector<Member> others = neighbours;
  std::erase_if(others, [&](Member member) { return apart_.other_size(member) != size_of_others; });
  const bool are_most = 2 * others.size() > neighbours.size() + 1;
  const bool is_one_of_two =
      names_.size() == 2 && others.size() == 1 && !apart_.was_alike(others[0]);
  if (!are_most && !is_one_of_two) return;
  outcome_.failure = rejected(
      "model-differs",
      fmt::format("this device's model has {}, and that of {} has {}: {}; once they agree, start "
                  "each device that was changed again, and this one",
                  counted(run_.initial.size(), "value"),
                  list_some(others, 3, [this](Member member) { return names_[member]; }),
                  size_of_others,
                  is_external() ? "its trainer makes another model than theirs"
                                : "its rows have another number of columns, or its labels of "
                                  "classes, than theirs"));
}

void EpochSession::heard(Member member) {
  silent_.erase(member);
  perform(members_->on(membership::Heard{member}, now_));
}

void EpochSession::handle(const peer::LinkDown& down) {
  const Member member = down.member;
  greeted_.erase(member);
  unsent_.erase(member);
  if (!apart_.contains(member)) lose(member);
  perform(members_->on(membership::LinkLost{member}, now_));
  continue_copy();
}

// To training and copying.
void EpochSession::lose(Member member) {
  copies_.link_lost(member);
  tell_training(peer::LinkDown{member});
  if (copy_) copy_->lose(member);
  std::erase_if(asks_, [&](const Ask& ask) { return ask.from == member; });
}

void EpochSession::handle(peer::MessageReceived& came) {
  const Member from = came.from;
  const protocol::Message& message = came.envelope.message;
  if (const auto* swim = std::get_if<protocol::Swim>(&message)) {
    if (swim->epoch == epoch_) silent_.erase(from);
    perform(members_->on(membership::Received{from, *swim}, now_));
  } else if (apart_.contains(from)) {
    return;
  } else if (const auto* ask = std::get_if<protocol::ColumnsAsk>(&message)) {
    const auto waiting = std::ranges::count(asks_, from, &Ask::from);
    if (ask->epoch == epoch_ && waiting < kAsksMax) asks_.push_back({from, *ask});
    answer_asks();
  } else if (const auto* answer = std::get_if<protocol::ColumnsPutOff>(&message)) {
    if (answer->epoch == epoch_ && copy_) copy_->put_off(from);
    continue_copy();
  } else {
    tell_training(std::move(came));
  }
}

Result<void> EpochSession::check(Member from, const VectorTransfer& transfer) const {
  if (transfer.epoch != epoch_) {
    return rejected("other-epoch", "this peer is not in that epoch");
  }
  if (apart_.contains(from)) {
    return rejected("not-wanted", "nothing is exchanged with a peer that takes no part");
  }
  const auto* const columns = std::get_if<ModelColumns>(&transfer.content);
  if (columns == nullptr) return training_->check(from, transfer);
  if (copy_ && copy_->expects(from, *columns)) return {};
  return rejected("not-wanted", "these columns were not asked for");
}

void EpochSession::handle(const peer::TransferProgressed& event) {
  const auto* const columns = std::get_if<ModelColumns>(&event.transfer.content);
  if (columns != nullptr && copy_ && event.transfer.epoch == epoch_)
    copy_->progressed(event.from, *columns, now_);
}

void EpochSession::handle(peer::TransferRefused& refused) {
  const VectorTransfer& transfer = refused.transfer;
  if (apart_.contains(refused.from)) return;
  if (transfer.epoch != epoch_ || std::holds_alternative<ModelColumns>(transfer.content)) return;
  note_where(refused.from, transfer);
  tell_training(refused);
}

void EpochSession::handle(peer::TransferReceived& came) {
  heard(came.from);
  if (apart_.contains(came.from)) return;
  if (const auto* const columns = std::get_if<ModelColumns>(&came.whole.transfer.content)) {
    take_columns(came.from, *columns, came.whole);
  } else {
    note_where(came.from, came.whole.transfer);
    tell_training(std::move(came));
  }
}

void EpochSession::note_where(Member from, const VectorTransfer& transfer) {
  const auto* const message = std::get_if<protocol::MixMessage>(&transfer.content);
  if (message == nullptr || transfer.support.minority) return;
  copies_.heard(from, message->exchange, training_->progress().exchange);
}

// --- a model that is taken over, or given -------------------------------------------------------

// A neighbour that is there, and did not give nothing when it was asked last.
std::optional<Member> EpochSession::other_donor(const std::vector<Member>& than) const {
  for (const Member member : training_->neighbours()) {
    const bool is_there = up_.contains(member) && !apart_.contains(member);
    const bool is_other = std::ranges::find(than, member) == than.end();
    if (is_there && is_other && !no_donors_.contains(member)) return member;
  }
  return std::nullopt;
}

// Without donors that gave nothing when they were asked last, as over a link that looks whole and
// carries nothing: each would cost the patience again. If no other member is there, they are asked.
void EpochSession::perform(training::CopyModel& copy) {
  auto& [donors, patience] = copy;
  const auto gives_nothing = [this](Member member) { return no_donors_.contains(member); };
  std::optional<Member> spare = other_donor(donors);
  if (!std::ranges::all_of(donors, gives_nothing)) {
    std::erase_if(donors, gives_nothing);
  } else if (spare) {
    donors = {*std::exchange(spare, std::nullopt)};
  }
  if (donors.size() > 1) spare.reset();
  patience.silent = std::min(patience.silent, copy_patience_);
  patience.sending = std::min(patience.sending, copy_patience_);
  copy_.emplace(std::move(donors), spare, run_.initial.size(), patience, support());
  answer_asks();
  continue_copy();
}

void EpochSession::take_columns(Member from, const ModelColumns& columns,
                                const TransferFlow::Whole& whole) {
  if (!copy_ || !copy_->expects(from, columns)) return;
  const std::span<const float> values(reinterpret_cast<const float*>(whole.data.view().data()),
                                      columns.floats);
  const auto own = training_->own_model().subspan(columns.begin, values.size());
  const auto judged = UsualDistance::judge_copied(values, own, training_->progress().exchange);
  if (judged == UsualDistance::Copied::kSuspect) tell_training(training::DonorSuspected{from});
  if (judged != UsualDistance::Copied::kRefused) {
    copy_->take(from, columns, whole.transfer.support, values);
    no_donors_.erase(from);
  } else {
    say(LogLevel::kWarning, names_[from] + " gives a model that is none of this run: not copied");
    copy_->lose(from);
  }
  continue_copy();
}

void EpochSession::continue_copy() {
  if (!copy_ || links_changed_) return;
  for (const ModelCopy::Ask& ask : copy_->asks(now_)) {
    protocol::ColumnsAsk columns = ask.columns;
    columns.epoch = epoch_;
    if (up_.contains(ask.to)) {
      act(peer::Send{ask.to, columns});
    } else {
      copy_->lose(ask.to);
    }
  }
  if (!copy_->failed() && !copy_->done()) return;
  const ModelCopy copy = *std::exchange(copy_, std::nullopt);
  no_donors_.insert(copy.gave_nothing().begin(), copy.gave_nothing().end());
  if (copy.failed()) return tell_training(training::NotCopied{});
  tell_training(training::Copied{copy.progress(), copy.givers(), copy.model()});
}

// In the background, so that a member that copies the model delays no exchange. Who may have
// nothing now may later. Members that copy from one another would all wait for nothing, and so each
// says that it copies.
void EpochSession::answer_asks() {
  if (asks_.empty() || links_changed_) return;
  const auto model = training_->model();
  if (!model) {
    if (copy_) std::ranges::for_each(asks_, [this](Ask& waiting) { put_off(waiting); });
    return;
  }
  const Exchange exchange = training_->progress().exchange;
  const std::vector<Member> neighbours = training_->neighbours();
  std::erase_if(asks_, [&](Ask& waiting) {
    const auto& [to, ask, was_put_off] = waiting;
    if (ask.end > model->size()) return true;
    const bool is_neighbour = std::ranges::binary_search(neighbours, to);
    const auto answer = copies_.give(to, is_neighbour, ask, model->size(), now_);
    if (answer != CopyRules::Answer::kGiven) {
      if (answer == CopyRules::Answer::kTooOften && often_.insert(to).second) {
        say(LogLevel::kWarning,
            fmt::format("{} asks for this peer's model again and again: it is given one in a while",
                        names_[to]));
      }
      put_off(waiting);
      return false;
    }
    const auto columns = model->subspan(ask.begin, ask.end - ask.begin);
    const VectorTransfer transfer{
        .epoch = epoch_,
        .content = ModelColumns{.exchange = exchange, .begin = ask.begin, .floats = columns.size()},
        .support = support()};
    act(peer::SendTransfer{to, transfer, SharedBytes::own(to_bytes(as_bytes(columns))),
                           TransferFlow::Urgency::kBackground});
    return true;
  });
}

void EpochSession::put_off(Ask& ask) {
  if (std::exchange(ask.put_off, true)) return;
  act(peer::Send{ask.from, protocol::ColumnsPutOff{.epoch = epoch_}});
}

// --- what the protocol asks for ------------------------------------------------------------------

// An action may lead to the next event at once. Its actions are performed before the other ones.
void EpochSession::tell_training(training::Event event) {
  for (training::Action& action : training_->on(std::move(event), now_)) {
    std::visit([this](auto& a) { perform(a); }, action);
  }
}

void EpochSession::perform(peer::SendTransfer& send) {
  if (!may_send(send.to)) return;
  // The protocol sends again what is lost for want of a link.
  if (!up_.contains(send.to)) act(peer::Reach{send.to});
  send.transfer.epoch = epoch_;
  act(std::move(send));
}

void EpochSession::perform(peer::Compute& compute) {
  computing_since_ = now_;
  act(std::move(compute));
}

void EpochSession::perform(training::Train& train) {
  peer::Compute phase{.what = peer::Compute::What::kTraining, .work = std::move(train.work)};
  const auto due = pace_ ? pace_->due(train.step) : now_;
  if (due && *due <= now_) return perform(phase);
  held_back_ = HeldBack{due, std::move(phase)};
}

void EpochSession::handle(peer::Computed& computed) {
  tell_training(std::move(computed));
  answer_asks();
}

// --- the model at the end of an exchange --------------------------------------------------------

void EpochSession::perform(const training::Advanced&) {
  const TrainingProgress progress = training_->progress();
  outcome_.advanced = true;
  outcome_.all_heard = progress.heard == progress.expected;
  answer_asks();  // who never waits for others has its model to show at no other moment
  // A model that trains, or whose trainer's task may be cancelled, cannot be had later.
  if (pace_ || is_external()) {
    if (auto now = checkpoint()) {
      outcome_.mixed = Mixed{std::make_shared<const Checkpoint>(std::move(*now)), progress};
    }
  }
  if (!pace_) {
    hand_in_model();
    if (now_ >= checkpoint_at_) keep_checkpoint(false);
  }
  tell_training(training::Continue{});
}

void EpochSession::perform(const training::Finished&) {
  outcome_.finished = true;
  hand_in_model();
  keep_checkpoint(true);
  answer_asks();  // nothing is computed any more that would be followed by it
}

// At every evaluation of the run its issuer may want the model.
void EpochSession::hand_in_model() {
  const auto model = training_->model();
  if (!model) return;
  const TrainingProgress progress = training_->progress();
  const bool last = training_->is_finished();
  const NetOptions& options = run_.options;
  const std::uint64_t evaluation = progress.step / options.evaluate_every();
  // Less far, where the model of a quorum took the place of one that was learned apart.
  if (progress.exchange == 0 || (evaluation <= handed_in_at_ && !last)) return;
  handed_in_at_ = evaluation;
  // A peer that left out exchanges hands in its model for the evaluation that it passed.
  const std::uint64_t due =
      last ? progress.exchange
           : options.schedule().mixings_until(evaluation * options.evaluate_every());
  const VectorTransfer transfer{
      .epoch = epoch_,
      .content = protocol::WholeModel{.exchange = due - 1,  // the last that is in it
                                      .step = progress.step,
                                      .floats = model->size()}};
  act(peer::HandIn{transfer, SharedBytes::own(to_bytes(as_bytes(*model)))});
}

void EpochSession::keep_checkpoint(bool model_too) {
  auto now = checkpoint();
  if (!now || pace_) return;
  checkpoint_at_ = now_ + checkpoint_every_;
  const auto kept = std::make_shared<const Checkpoint>(std::move(*now));
  outcome_.mixed = Mixed{kept, training_->progress()};
  act(peer::KeepCheckpoint{kept, run_.layout(), model_too});
}

std::optional<Checkpoint> EpochSession::checkpoint() const {
  const auto model = training_->model();
  if (!model) return std::nullopt;
  Checkpoint now{.run = run_id_,
                 .exchange = training_->progress().exchange,
                 .model = {model->begin(), model->end()},
                 .support = support()};
  if (!pace_) {  // of a fallback the model is all that counts
    now.state = {.algorithm = std::string(run_.plan.traits.name),
                 .epoch = epoch_,
                 .bytes = training_->state()};
  }
  return now;
}

// --- failure detection --------------------------------------------------------------------------

void EpochSession::perform(const std::vector<membership::Action>& actions) {
  for (const membership::Action& action : actions) {
    if (const auto* send = std::get_if<membership::Send>(&action)) {
      if (up_.contains(send->to)) {
        act(peer::Send{send->to, send->swim});
      } else {
        unsent_[send->to] = send->swim;
        act(peer::Reach{send->to});
      }
    } else if (const auto* changed = std::get_if<membership::Changed>(&action)) {
      const bool reachable =
          changed->state != protocol::SwimNews::State::kDead && !apart_.contains(changed->member);
      say(LogLevel::kDebug, fmt::format("{} is {}", names_[changed->member],
                                        reachable ? "reachable" : "not reachable"));
      tell_training(training::Reach{changed->member, reachable});
      if (!copy_ || reachable) continue;
      copy_->lose(changed->member);
      continue_copy();
    }
  }
}

std::map<std::string, bool> EpochSession::who_is_there() const {
  std::map<std::string, bool> there;
  for (Member member = 0; member < names_.size(); ++member) {
    there[names_[member]] =
        members_->state(member) != protocol::SwimNews::State::kDead && !silent_.contains(member);
  }
  return there;
}

// --- time ---------------------------------------------------------------------------------------

void EpochSession::handle(const peer::Tick&) {
  if (held_back_ && held_back_->until && *held_back_->until <= now_) {
    HeldBack held_back = *std::exchange(held_back_, std::nullopt);
    perform(held_back.phase);
  }
  perform(members_->on(membership::Tick{}, now_));
  tell_training(peer::Tick{});
  continue_copy();
}

std::optional<TimePoint> EpochSession::next_deadline() const {
  std::optional<TimePoint> next;
  const auto sooner = [&](std::optional<TimePoint> time) {
    if (time) next = std::min(next.value_or(*time), *time);
  };
  sooner(members_->next_deadline());
  sooner(training_->next_deadline());
  if (copy_) sooner(copy_->next_deadline());
  if (held_back_) sooner(held_back_->until);
  return next;
}

void EpochSession::leave(bool links_changed) {
  links_changed_ = links_changed_ || links_changed;
  tell_training(training::Leave{});
}

PeerHello EpochSession::greeting() const {
  return {.epoch = epoch_,
          .exchange = training_->progress().exchange,
          .begun = true,
          .support = support(),
          .elements = run_.initial.size()};
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/asynchronous_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "gossip/algorithms/mass_ledger.h"
#include "gossip/progress/ahead_bound.h"
#include "topologies/topology.h"

namespace starling::gossip {

using protocol::Confirmation;
using protocol::Introduction;
using protocol::PairMessage;
using protocol::VectorTransfer;
using Kind = AsyncMessage<float>::Kind;

namespace {

// Who has done less than a quarter of a neighbour's phases, and is not just a few behind, takes the
// model of those who are ahead instead of pulling them back to its own.
constexpr Exchange kFarFactor = 4;
constexpr Exchange kFarSlack = 8;
constexpr std::size_t kAsyncDonorsMax = 4;
// How many requests of one neighbour are answered between two local phases. Each answer moves this
// model half way to the neighbour's. A faster neighbour asks more than once.
constexpr int kRequestsMax = 16;
// The most of a weight of 1 that may be on its way, of all receivers together.
constexpr double kUnderWayMost = 15.0 / 16;
// A finished peer goes on mixing for so many times its own local phase after the last phase that it
// heard of.
constexpr int kPhasesWaited = 16;
// Between two mixings of a peer that is done.
constexpr Duration kLeastPace = std::chrono::milliseconds(10);
constexpr Duration kUnknownPace = std::chrono::seconds(1);

PairMessage::Kind kind_sent(Kind kind) {
  if (kind == Kind::kPush) return PairMessage::Kind::kPush;
  return kind == Kind::kRequest ? PairMessage::Kind::kRequest : PairMessage::Kind::kReply;
}

Kind kind_received(PairMessage::Kind kind) {
  if (kind == PairMessage::Kind::kPush) return Kind::kPush;
  return kind == PairMessage::Kind::kRequest ? Kind::kRequest : Kind::kReply;
}

}  // namespace

AsynchronousProtocol::AsynchronousProtocol(const NetworkRun& run, LocalSteps& local,
                                           ProtocolPlace place, const ProtocolPatience& patience,
                                           ProtocolStart start, TimePoint now)
    : ProtocolBase(run, local, place, now),
      absent_(std::move(place.absent)),
      limits_(patience),
      incarnation_(start.incarnation),
      graph_(neighbours_of(*run.topology, self_, 0)),
      algorithm_(make_async_algorithm<float>(run.plan, self_, std::span<const float>(start.model))),
      rng_({.seed = run.options.run.seed, .purpose = Purpose::kAlgorithm, .node = self_}),
      quorum_(names_.size(), now, start.support),
      jumps_(start.run_age, now),
      left_out_("message", "were ignored", names_),
      phases_(std::min(start.exchange, exchanges_)),
      matrix_(run.topology->at(phases_)) {
  if (start.state.empty()) return;
  const auto restored = restore_state(*algorithm_, start.state);
  if (!restored) say(LogLevel::kWarning, restored.error().message());
}

std::vector<Member> AsynchronousProtocol::neighbours() const {
  return neighbours_of(*run_.topology, self_, phases_);
}

// Not before all neighbours were heard, for a while: who is alone learns nothing from others, and
// whoever comes late has to hear of it before it tells anybody its model.
void AsynchronousProtocol::handle(const training::Begin&) {
  if (phases_ == exchanges_) return finish();
  alarm_ = now_ + limits_.start;
  begin_if_joined();
}

TrainingProgress AsynchronousProtocol::progress() const {
  static constexpr std::array<std::string_view, 4> kStates = {"joining", "training", "catching-up",
                                                              "finished"};
  TrainingProgress progress = progress_at(kStates[static_cast<std::size_t>(state_)], phases_);
  for (const topologies::Weight& sender : matrix_->senders(self_)) {
    const auto found = neighbours_.find(sender.node);
    ++progress.expected;
    if (found != neighbours_.end() && found->second.open()) ++progress.heard;
  }
  if (state_ == State::kTraining && progress.expected > 0 && progress.heard == 0) {
    progress.state = "alone";
  }
  progress.traffic = traffic_;
  return progress;
}

// --- training -----------------------------------------------------------------------------------

bool AsynchronousProtocol::has_joined() const {
  return std::ranges::all_of(neighbours(), [this](Member member) {
    if (absent_.contains(member)) return true;
    const auto found = neighbours_.find(member);
    return found != neighbours_.end() && (found->second.heard || !found->second.reachable);
  });
}

// It had a quorum all the time that this peer had none.
bool AsynchronousProtocol::outranks(const Neighbour& neighbour) const {
  return neighbour.open() && quorum_.outranked_by(neighbour.support, neighbour.support_at, now_);
}

// Those who are far ahead, where enough neighbours confirm it: two, or the only one that is there,
// as far as it can be.
std::vector<Member> AsynchronousProtocol::far_ahead() const {
  std::vector<Member> further;
  Exchange furthest = 0;
  std::size_t open = 0;
  for (const auto& [member, neighbour] : neighbours_) {
    open += neighbour.open() ? 1 : 0;
    if (!neighbour.far_ahead) continue;
    further.push_back(member);
    furthest = std::max(furthest, neighbour.phases);
  }
  if (further.size() >= AheadBound::kWitnesses) return further;
  const auto limit = jumps_.limit(1, 0, now_);
  if (open > 1 || furthest > limit.value_or(furthest)) further.clear();
  return further;
}

// Whose model is to be taken in place of our own.
std::vector<Member> AsynchronousProtocol::donors() const {
  std::vector<Member> chosen;
  for (const auto& [member, neighbour] : neighbours_) {
    if (outranks(neighbour)) chosen.push_back(member);
  }
  if (chosen.empty()) chosen = far_ahead();
  chosen.resize(std::min(chosen.size(), kAsyncDonorsMax));
  return chosen;
}

void AsynchronousProtocol::begin_if_joined() {
  if (state_ != State::kJoining || !alarm_) return;
  if (!has_joined() && now_ < *alarm_) return;
  alarm_.reset();
  state_ = State::kTraining;
  go_on();
}

void AsynchronousProtocol::go_on() {
  if (state_ != State::kTraining || is_computing()) return;
  std::vector<Member> others = donors();
  if (others.empty()) return phases_ == exchanges_ ? finish() : compute_phase();
  const bool apart = outranks(neighbours_[others.front()]);
  say(LogLevel::kInfo, fmt::format("{}: taking the model of {}",
                                   apart ? "a quorum went on without this peer" : "far behind",
                                   names_[others.front()]));
  state_ = State::kCopying;
  act(training::CopyModel{std::move(others), {.silent = patience(), .sending = Duration::max()}});
}

void AsynchronousProtocol::compute_phase() {
  if (is_leaving_) return;
  const auto phase = std::make_shared<Phase>();
  const LocalPhase local = phase_of(phases_);
  const std::span<const float> model = algorithm_->model();
  phase->base.assign(model.begin(), model.end());
  phase->trained = phase->base;
  phase->began = now_;
  train(
      local,
      [this, phase, local] {
        const auto training = local_.training(local.step);
        auto loss_sum = training->steps(phase->trained, local.rate, local.steps);
        for (std::size_t i = 0; i < phase->base.size(); ++i) phase->trained[i] -= phase->base[i];
        return loss_sum;
      },
      [this, phase](double loss_sum) { phase_ended(*phase, loss_sum); });
}

void AsynchronousProtocol::phase_ended(const Phase& phase, double loss_sum) {
  work_ = now_ - phase.began;
  jumps_.trained(work_);
  if (behind()) return go_on();  // what was learnt from a model that is about to be dropped
  if (!learned(loss_sum, phase_of(phases_), usual_.suspect())) return;
  ++phases_;
  mix(phase.trained);
  matrix_ = run_.topology->at(phases_);
  act(training::Advanced{});
}

// Of one that is done. A process that has trained nothing does not know its pace, and sends little.
Duration AsynchronousProtocol::mixing_pace() const {
  return work_ == Duration::zero() ? kUnknownPace : std::max(work_, kLeastPace);
}

// The neighbours hear of it, so that those who are done as well rest.
void AsynchronousProtocol::finish() {
  state_ = State::kFinished;
  advanced_at_ = now_;
  for (const auto& [member, neighbour] : neighbours_) introduce(member);
  alarm_ = now_ + mixing_pace();
  for (std::string& line : left_out_.finish()) say(LogLevel::kWarning, std::move(line));
  act(training::Finished{});
}

void AsynchronousProtocol::note_phases(Neighbour& neighbour, Exchange phases) {
  if (phases > neighbour.most_phases && !is_over()) advanced_at_ = now_;
  neighbour.most_phases = std::max(neighbour.most_phases, phases);
  neighbour.phases = phases;
}

bool AsynchronousProtocol::is_over() const {
  return is_finished() && now_ >= advanced_at_ + std::max(limits_.max, kPhasesWaited * work_);
}

bool AsynchronousProtocol::somebody_trains() const {
  if (is_over()) return false;
  return std::ranges::any_of(neighbours_, [this](const auto& entry) {
    return entry.second.open() && entry.second.phases < exchanges_;
  });
}

// Along this phase's edges, to the neighbours that are there; what the others would get stays here.
// Each of d receivers has at most kUnderWayMost / d of a weight on its way: one that is cut off
// takes no more along, however long it takes to find that out and however short phases are. No mass
// travels between a minority and a quorum, whose model will replace the minority's: a minority only
// asks whether there is a quorum.
void AsynchronousProtocol::mix(std::span<const float> update) {
  requests_.clear();
  const bool is_minority = support(now_).minority;
  // Nobody else tells the neighbours; what a quorum did not take before comes with the next totals.
  if (!is_minority && std::exchange(said_minority_, false)) {
    for (auto& [member, neighbour] : neighbours_) {
      neighbour.unconfirmed.forget();
      if (neighbour.open()) introduce(member);
    }
  }
  Links links{self_, matrix_->self(self_), matrix_->senders(self_), {}};
  std::vector<topologies::Weight> receivers;
  const double weight = algorithm_->weight();
  const std::size_t all = std::max(graph_.size(), matrix_->receivers(self_).size());
  const double most = kUnderWayMost / static_cast<double>(all);
  for (const topologies::Weight& receiver : matrix_->receivers(self_)) {
    const Neighbour& neighbour = neighbours_[receiver.node];
    const bool is_apart = is_minority != neighbour.support.minority;
    const bool has_room = neighbour.unconfirmed.has_room(weight * receiver.weight, most);
    if (neighbour.open() && !is_apart && has_room) {
      receivers.push_back(receiver);
    } else {
      links.self_weight += receiver.weight;
    }
    if (neighbour.open() && is_apart && is_minority) introduce(receiver.node);
  }
  links.receivers = receivers;
  const bool waited = algorithm_->waiting();
  transmit(algorithm_->trained(update, links, rng_));
  say_who_drained(algorithm_->drained_by());
  if (waited || !algorithm_->waiting()) return;
  asked_at_ = now_;
  give_up_at_ = asked_at_ + patience();
}

Duration AsynchronousProtocol::patience() const {
  const double learned = patience_.seconds(to_seconds(work_), to_seconds(limits_.max));
  return std::clamp(from_seconds(learned), limits_.min, limits_.max);
}

void AsynchronousProtocol::give_up() {
  give_up_at_.reset();
  if (algorithm_->waiting()) algorithm_->unanswered();
}

// --- transfers -----------------------------------------------------------------------------------

protocol::Incarnations AsynchronousProtocol::edge_to(Member to) const {
  const auto found = neighbours_.find(to);
  return {incarnation_, found == neighbours_.end() ? 0 : found->second.incarnation};
}

void AsynchronousProtocol::send(Member to, const VectorTransfer::Content& content,
                                SharedBytes data) {
  const protocol::Support said = support(now_);
  said_minority_ |= said.minority;
  act(peer::SendTransfer{to, {.content = content, .support = said}, std::move(data)});
}

void AsynchronousProtocol::introduce(Member to) {
  send(to, Introduction{.edge = edge_to(to), .exchange = phases_}, {});
}

// Also what could not be used: it comes with the next total.
void AsynchronousProtocol::confirm(Member to, std::uint64_t number) {
  send(to, Confirmation{.number = number, .edge = edge_to(to), .phases = phases_}, {});
}

void AsynchronousProtocol::transmit(const std::vector<AsyncSend<float>>& sends) {
  for (const AsyncSend<float>& each : sends) {
    const AsyncMessage<float>& message = *each.message;
    STARLING_CHECK(message.vector.empty() || message.packed.empty());
    PairMessage pair{.kind = kind_sent(message.kind),
                     .number = message.number,
                     .edge = edge_to(each.to),
                     .phases = phases_,
                     .floats = message.vector.size(),
                     .packed = message.packed.size()};
    if (message.has_scalar) pair.scalar = message.scalar;
    if (message.kind == Kind::kRequest) asked_ = each.to;
    if (algorithm_->counts_on_edges()) {
      const double total = MassLedger::weight_of(message.packed);
      neighbours_[each.to].unconfirmed.sent(message.number, total);
    }
    const ByteView bytes =
        message.packed.empty() ? as_bytes(std::span(message.vector)) : ByteView(message.packed);
    send(each.to, pair, SharedBytes(each.message, bytes));
  }
}

Result<void> AsynchronousProtocol::check(Member from, const VectorTransfer& transfer) const {
  const auto* const pair = std::get_if<PairMessage>(&transfer.content);
  const auto* const confirmation = std::get_if<Confirmation>(&transfer.content);
  const bool is_confirmation =
      confirmation != nullptr && (confirmation->number == 0 || algorithm_->counts_on_edges());
  const bool is_known =
      pair != nullptr || is_confirmation || std::holds_alternative<Introduction>(transfer.content);
  if (!is_known || from >= names_.size()) {
    return rejected("not-wanted", "this transfer is of no use here");
  }
  if (pair == nullptr) return {};
  const std::uint64_t size = run_.initial.size();
  const bool is_vector = pair->floats == size && pair->packed == 0;
  const bool is_mass = pair->floats == 0 && pair->packed == MassLedger::total_bytes(size);
  const bool is_neighbour =
      run_.topology->period() == 0 || std::ranges::binary_search(graph_, from);
  if (!is_neighbour) {
    return rejected("not-wanted", fmt::format("{} is no neighbour", names_[from]));
  }
  if (pair->number > 0 && (is_vector || is_mass)) return {};
  return rejected("wrong-vectors",
                  fmt::format("{} announces vectors that are not of this model", names_[from]));
}

void AsynchronousProtocol::handle(const peer::TransferReceived& came) {
  const auto& [from, whole] = came;
  const VectorTransfer::Content& content = whole.transfer.content;
  const protocol::Support& support = whole.transfer.support;
  // What was sent while it could not be reached may be lost: no confirmation would make room.
  if (std::exchange(neighbours_[from].is_back, false)) neighbours_[from].unconfirmed.forget();
  if (const auto* const introduction = std::get_if<Introduction>(&content)) {
    const bool is_known = meet(from, introduction->edge, introduction->exchange, support);
    neighbours_[from].unconfirmed.forget();  // it may have forgotten what it was sent
    if (is_known && (algorithm_->counts_on_edges() || !is_of_quorum(from))) confirm(from, 0);
  } else if (const auto* const confirmation = std::get_if<Confirmation>(&content)) {
    meet(from, confirmation->edge, confirmation->phases, support);
    neighbours_[from].unconfirmed.confirmed(confirmation->number);
  } else if (const auto* const pair = std::get_if<PairMessage>(&content)) {
    if (meet(from, pair->edge, pair->phases, support) && !take(from, *pair, whole.data)) return;
  } else {
    return;  // an earlier session took it
  }
  begin_if_joined();
}

// Whether it knows who we are; else it is told.
bool AsynchronousProtocol::meet(Member from, const protocol::Incarnations& edge, Exchange phases,
                                const protocol::Support& support) {
  Neighbour& neighbour = neighbours_[from];
  if (neighbour.incarnation != edge.sender) {
    neighbour.incarnation = edge.sender;
    neighbour.unconfirmed.restart();
    algorithm_->forget(from);
  }
  neighbour.heard = true;
  note_phases(neighbour, is_possible(from, phases) ? phases : exchanges_);
  neighbour.support = support;
  neighbour.support_at = now_;
  if (edge.receiver == incarnation_) return true;
  introduce(from);
  return false;
}

// What a minority learned apart is not mixed in: it is about to take the majority's model. It may
// hear nothing from us but answers, and must learn that a quorum went on without it.
bool AsynchronousProtocol::is_of_quorum(Member from) const {
  return quorum_.counts(neighbours_.at(from).support, now_);
}

// False: it is of no use now. Unconfirmed, its sender keeps what it has: while a model is copied,
// until we introduce ourselves.
bool AsynchronousProtocol::take(Member from, const PairMessage& pair, const SharedBytes& data) {
  if (!is_of_quorum(from)) {
    if (pair.kind != PairMessage::Kind::kReply) confirm(from, 0);
    return true;
  }
  if (is_over() || state_ == State::kCopying) return false;
  if (!behind()) receive(from, pair, data);
  if (algorithm_->counts_on_edges()) confirm(from, pair.number);
  return true;
}

bool AsynchronousProtocol::is_usual(Member from, const AsyncMessage<float>& message) {
  const auto unpacked = algorithm_->unpack(from, message);
  if (!unpacked && message.vector.empty()) return true;
  const bool usual = unpacked ? usual_.accepts(from, unpacked->theirs, unpacked->own)
                              : usual_.accepts(from, message.vector, algorithm_->model());
  if (usual) return true;
  ignore(from, fmt::format("{} sent a vector that is {:.3g} away from this peer's model, more "
                           "than {:.3g}: ignored",
                           names_[from], usual_.distance(), usual_.limit()));
  return false;
}

void AsynchronousProtocol::ignore(Member from, const std::string& why) {
  if (!left_out_.is_first(from, phases_)) return;
  say(LogLevel::kWarning, why + "; a line follows when this ends");
}

void AsynchronousProtocol::receive(Member from, const PairMessage& pair, const SharedBytes& data) {
  const bool is_reply = pair.kind == PairMessage::Kind::kReply;
  const auto message = read(from, pair, data);
  // A quick neighbour asks a slow peer as often, and is not named.
  const bool is_request = pair.kind == PairMessage::Kind::kRequest;
  if (message && is_request && ++requests_[from] > kRequestsMax) return;
  if (!message || !is_usual(from, *message)) {
    if (is_reply && from == asked_) give_up();  // it has answered: another one is asked next
    return;
  }
  if (auto line = left_out_.ended(from, phases_)) {
    say(LogLevel::kWarning, std::move(*line));
  }
  const bool waited = algorithm_->waiting();
  if (is_reply && !waited) ++traffic_.late;
  transmit(algorithm_->receive(from, *message));
  if (!waited || algorithm_->waiting()) return;
  patience_.learn(to_seconds(now_ - asked_at_));
  give_up_at_.reset();
}

// None: it cannot be of any use, which is said.
std::optional<AsyncMessage<float>> AsynchronousProtocol::read(Member from, const PairMessage& pair,
                                                              const SharedBytes& data) {
  const std::span<const float> values(reinterpret_cast<const float*>(data.view().data()),
                                      pair.floats);
  if (!is_finite(values)) {
    ignore(from, fmt::format("{} sent what is not a number: ignored", names_[from]));
    return std::nullopt;
  }
  const ByteView packed = data.view().subspan(values.size_bytes());
  const bool is_plausible = (packed.empty() || algorithm_->can_read(from, packed)) &&
                            (!pair.scalar || algorithm_->can_weigh(from, *pair.scalar));
  if (!is_plausible) {
    ignore(from, fmt::format("{} sent what is no message of {}: ignored", names_[from],
                             run_.plan.traits.name));
    return std::nullopt;
  }
  return AsyncMessage<float>{.kind = kind_received(pair.kind),
                             .number = pair.number,
                             .vector = {values.begin(), values.end()},
                             .packed = {packed.begin(), packed.end()},
                             .scalar = pair.scalar.value_or(0),
                             .has_scalar = pair.scalar.has_value()};
}

// --- who is there -------------------------------------------------------------------------------

void AsynchronousProtocol::handle(const peer::LinkUp& up) {
  const auto& [from, hello, is_new] = up;
  if (!is_new || from >= names_.size() || !is_possible(from, hello.exchange)) return;
  Neighbour& neighbour = neighbours_[from];
  note_phases(neighbour, hello.exchange);
  neighbour.support = hello.support;
  neighbour.support_at = now_;
  const Exchange learnt = std::max(phases_, caught_up_);
  neighbour.far_ahead = hello.begun && !hello.support.minority && state_ != State::kFinished &&
                        hello.exchange > learnt + kFarSlack && hello.exchange / kFarFactor > learnt;
  introduce(from);
}

// A reply cannot come any more; a push comes with the next total.
void AsynchronousProtocol::handle(const peer::LinkDown& down) {
  const auto found = neighbours_.find(down.member);
  if (found == neighbours_.end()) return;
  found->second.heard = false;
  found->second.far_ahead = false;
  found->second.unconfirmed.forget();
  if (asked_ == down.member) give_up();
}

void AsynchronousProtocol::handle(const training::Reach& reach) {
  const auto& [member, reachable] = reach;
  if (member >= names_.size()) return;
  Neighbour& neighbour = neighbours_[member];
  neighbour.reachable = reachable;
  if (neighbour.open() && algorithm_->counts_on_edges()) {  // also where it was suspected only
    neighbour.is_back = true;
    introduce(member);  // so that it says something, if it is: others may only have said so
  }
  const bool lost_or_back = quorum_.reach(member, reachable, now_);
  if (lost_or_back) say(quorum_.held() ? LogLevel::kInfo : LogLevel::kWarning, quorum_.tell());
  if (!reachable && asked_ == member) give_up();
  begin_if_joined();
}

// Also where nobody gave a model: the same neighbours would be asked again and again. Of several
// the second furthest counts, so that no single one makes this peer believe that it has caught up
// with more than there is.
void AsynchronousProtocol::caught_up() {
  state_ = State::kTraining;
  if (algorithm_->counts_on_edges()) {
    for (const auto& [member, neighbour] : neighbours_) introduce(member);
  }
  std::vector<Exchange> claims;
  for (auto& [member, neighbour] : neighbours_) {
    if (std::exchange(neighbour.far_ahead, false)) claims.push_back(neighbour.phases);
  }
  if (claims.empty()) return;
  std::ranges::sort(claims, std::greater<>());
  const std::size_t witness = std::min(claims.size(), AheadBound::kWitnesses) - 1;
  caught_up_ = std::max(caught_up_, claims[witness]);
}

// Mass and the weight that this peer's model counts with stay as they are: there the difference is
// an update like any other. Elsewhere nothing of the former model is left, and none of it is sent.
void AsynchronousProtocol::handle(const training::Copied& copied) {
  const std::span<const float> model = copied.model;
  STARLING_CHECK(state_ == State::kCopying && !is_computing() &&
                 model.size() == run_.initial.size());
  for (const auto& [member, neighbour] : neighbours_) {
    if (outranks(neighbour)) quorum_.rejoin(neighbour.support, neighbour.support_at);
  }
  local_.forget_momentum();
  give_up();  // what was asked for was of the former model
  caught_up();
  if (run_.plan.traits.weighs) {
    std::vector<float> update(model.begin(), model.end());
    const std::span<const float> own = algorithm_->model();
    for (std::size_t i = 0; i < update.size(); ++i) update[i] -= own[i];
    mix(update);
  } else {
    algorithm_->restart(model);
  }
  go_on();
}

void AsynchronousProtocol::handle(const training::NotCopied&) {
  say(LogLevel::kWarning, "no peer sent a model: continues with its own");
  caught_up();
  go_on();
}

// --- time ---------------------------------------------------------------------------------------

void AsynchronousProtocol::handle(const peer::Tick&) {
  if (give_up_at_ && now_ >= *give_up_at_) {
    patience_.give_up();
    give_up();
  }
  if (is_finished() && somebody_trains() && now_ >= *alarm_) {
    alarm_ = now_ + mixing_pace();
    mix(std::vector<float>(run_.initial.size()));
  }
  begin_if_joined();
}

std::optional<TimePoint> AsynchronousProtocol::next_deadline() const {
  std::optional<TimePoint> next = give_up_at_;
  const bool needs_alarm = state_ == State::kJoining || (is_finished() && somebody_trains());
  if (needs_alarm && alarm_) next = std::min(next.value_or(*alarm_), *alarm_);
  return next;
}

}  // namespace starling::gossip

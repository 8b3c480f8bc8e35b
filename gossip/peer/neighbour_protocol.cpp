// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/neighbour_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "topologies/topology.h"

namespace starling::gossip {

using protocol::Incarnations;
using protocol::Introduction;
using protocol::MixMessage;
using protocol::VectorTransfer;

namespace {

// The floats and bytes of a message, one after the other.
SharedBytes pack(const Message<float>& message) {
  Bytes bytes(4 * (message.first.size() + message.second.size()) + message.packed.size());
  std::byte* to = bytes.data();
  for (const ByteView part :
       {as_bytes(message.first), as_bytes(message.second), ByteView(message.packed)}) {
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  return SharedBytes::own(std::move(bytes));
}

const float* floats(const SharedBytes& data) {
  return reinterpret_cast<const float*>(data.view().data());
}

// Null: it bears none.
const Incarnations* edge_of(const VectorTransfer::Content& content) {
  if (const auto* const introduction = std::get_if<Introduction>(&content)) {
    return &introduction->edge;
  }
  const auto* const message = std::get_if<MixMessage>(&content);
  return message != nullptr ? std::get_if<Incarnations>(&message->state) : nullptr;
}

}  // namespace

NeighbourProtocol::NeighbourProtocol(const NetworkRun& run, LocalSteps& local, ProtocolPlace place,
                                     const ExchangeOptions& options, ProtocolStart start,
                                     TimePoint now)
    : ProtocolBase(run, local, place, now),
      absent_(std::move(place.absent)),
      continues_(start.former != nullptr),
      trained_(start.former && start.former->trained),
      incarnation_(start.incarnation),
      resent_(options.resent),
      kept_max_(options.held_max),
      machine_(options, *run.topology, self_, names_, start.exchange, now, start.support),
      algorithm_(take_algorithm(run, self_, start)),
      tags_edges_(algorithm_->counts_on_edges()),
      far_(run.plan.robust.rule, names_),
      left_out_("message", "were left out", names_) {
  if (start.former) {
    usual_first_ = std::move(start.former->usual_first);
    usual_second_ = std::move(start.former->usual_second);
  }
  if (start.state.empty()) return;
  const auto restored = restore_state(*algorithm_, start.state);
  if (!restored) say(LogLevel::kWarning, restored.error().message());
}

void NeighbourProtocol::handle(const training::Begin&) {
  for (const Member member : absent_) tell_machine(exchange::Absent{member});
  if (!continues_) return tell_machine(exchange::Begin{});
  find_away();
  compute([this] { regroup(); },
          [this] {
            take_postponed();
            tell_machine(exchange::Begin{.trained = trained_});
          });
}

// From the members of the epoch before to these.
void NeighbourProtocol::regroup() {
  if (!trained_) return algorithm_->regroup(run_.plan, links(), nullptr);
  const LocalPhase phase = phase_of(machine_.exchange());
  algorithm_->regroup(run_.plan, links(), &phase);
}

std::vector<Member> NeighbourProtocol::neighbours() const {
  return neighbours_of(*run_.topology, self_, machine_.exchange());
}

TrainingProgress NeighbourProtocol::progress() const {
  static constexpr std::array<std::string_view, 7> kStates = {
      "joining", "training", "waiting", "training", "catching-up", "finished", "waiting"};
  TrainingProgress progress =
      progress_at(kStates[static_cast<std::size_t>(machine_.state())], machine_.exchange());
  progress.heard = machine_.heard();
  progress.expected = machine_.expected();
  progress.traffic = machine_.traffic();
  if (progress.state == "training" && progress.expected > 0 && progress.heard == 0) {
    progress.state = "alone";
  }
  return progress;
}

bool NeighbourProtocol::is_finished() const {
  return machine_.state() == ExchangeMachine::State::kFinished;
}

std::optional<std::span<const float>> NeighbourProtocol::model() const {
  if (is_computing()) return std::nullopt;
  return algorithm_->model();
}

std::optional<Handover> NeighbourProtocol::hand_over() {
  STARLING_CHECK(!is_computing());
  for (UsualDistance* usual : {&usual_first_, &usual_second_}) usual->forget_members();
  return Handover{.algorithm = std::move(algorithm_),
                  .exchange = machine_.exchange(),
                  .trained = machine_.state() == ExchangeMachine::State::kWaiting,
                  .usual_first = std::move(usual_first_),
                  .usual_second = std::move(usual_second_)};
}

// --- the machine --------------------------------------------------------------------------------

void NeighbourProtocol::tell_machine(exchange::Event event) {
  for (exchange::Action& action : machine_.on(std::move(event), now_)) {
    std::visit([this](auto& a) { perform(a); }, action);
  }
}

Links NeighbourProtocol::links() const {
  const topologies::MixingMatrix& matrix = machine_.matrix();
  return {self_, matrix.self(self_), matrix.senders(self_), matrix.receivers(self_), away_};
}

void NeighbourProtocol::find_away() {
  away_.clear();
  for (const topologies::Weight& receiver : machine_.matrix().receivers(self_)) {
    if (machine_.is_away(receiver.node)) away_.push_back(receiver.node);
  }
}

void NeighbourProtocol::forget_sent() {
  for (auto& [member, messages] : sent_) {
    while (!messages.empty() && messages.front().message.exchange + resent_ < machine_.exchange()) {
      messages.pop_front();
    }
  }
}

void NeighbourProtocol::perform(exchange::Train& train) {
  next_ = train;
  if (!is_mixed_) begin_phase();
}

void NeighbourProtocol::handle(const training::Continue&) {
  is_mixed_ = false;
  if (next_) begin_phase();
}

void NeighbourProtocol::begin_phase() {
  const exchange::Train train = *std::exchange(next_, std::nullopt);
  if (is_leaving_) return;
  forget_sent();
  packed_.clear();
  find_away();
  const LocalPhase phase = phase_of(train.exchange);
  const bool restart = train.restart, plain = train.plain;
  ProtocolBase::train(
      phase,
      [this, phase, restart, plain] {
        if (restart) {
          remake(algorithm_->model());
        } else if (plain) {
          const std::span<const float> model = algorithm_->model();
          algorithm_->restart(std::vector<float>(model.begin(), model.end()));
        }
        const auto training = local_.training(phase.step);
        return algorithm_->adapt(*training, phase, links());
      },
      [this, phase](double loss_sum) { trained(loss_sum, phase); });
}

// State that is shared along the edges begins anew, here as at the neighbours.
void NeighbourProtocol::remake(std::span<const float> model) {
  const std::vector<float> kept(model.begin(), model.end());
  algorithm_ = make_algorithm<float>(run_.plan, self_, std::span<const float>(kept));
}

void NeighbourProtocol::trained(double loss_sum, const LocalPhase& phase) {
  const auto suspect = usual_first_.suspect() ? usual_first_.suspect() : usual_second_.suspect();
  if (!learned(loss_sum, phase, suspect)) return;
  say_who_drained(algorithm_->drained_by());
  take_postponed();
  tell_machine(exchange::Trained{});
}

const NeighbourProtocol::Packed& NeighbourProtocol::packed(std::size_t place) {
  const std::size_t key = run_.plan.traits.per_receiver ? place : 0;
  const auto found = packed_.find(key);
  if (found != packed_.end()) return found->second;
  const Message<float>& message = algorithm_->message(key);
  Packed made;
  made.message.first = message.first.size();
  made.message.second = message.second.size();
  made.message.packed = message.packed.size();
  if (message.has_scalar) made.message.scalar = message.scalar;
  made.data = pack(message);
  return packed_.emplace(key, std::move(made)).first->second;
}

void NeighbourProtocol::perform(exchange::Announce& announce) {
  Packed made = packed(announce.place);
  made.message.exchange = announce.exchange;
  made.message.state = announce.eras;
  if (tags_edges_) made.message.state = edge_to(announce.to);
  made.support = support(now_);
  std::deque<Packed>& sent = sent_[announce.to];
  if (!sent.empty() && sent.back().message.exchange == announce.exchange) sent.pop_back();
  sent.push_back(std::move(made));
  if (sent.size() > kept_max_) sent.pop_front();
  send(announce.to, sent.back());
}

void NeighbourProtocol::send(Member to, const Packed& packed) {
  act(peer::SendTransfer{to, {.content = packed.message, .support = packed.support}, packed.data});
}

protocol::Incarnations NeighbourProtocol::edge_to(Member to) const {
  const auto theirs = incarnations_.find(to);
  return {incarnation_, theirs == incarnations_.end() ? 0 : theirs->second};
}

void NeighbourProtocol::perform(exchange::Ask& ask) {
  const protocol::MixAsk question{
      .epoch = epoch_, .exchange = ask.exchange, .support = support(now_)};
  act(peer::Send{ask.to, question});
}

void NeighbourProtocol::perform(exchange::Answer& answer) {
  const protocol::MixAnswer where{.epoch = epoch_,
                                  .exchange = answer.exchange,
                                  .asked = answer.asked,
                                  .sent = answer.sent,
                                  .support = support(now_)};
  act(peer::Send{answer.to, where});
}

// A message as it came, if it is one that this algorithm could have sent.
std::optional<Message<float>> NeighbourProtocol::read(Member from,
                                                      const exchange::Arrival& arrival) const {
  const MixMessage& message = arrival.message;
  // Its own message is the measure, and it has none where it sends to nobody.
  const bool has_own =
      !run_.plan.traits.per_receiver || !machine_.matrix().receivers(self_).empty();
  if (!has_own) return std::nullopt;
  const Message<float>& own = algorithm_->message(0);
  const std::span<const float> all(floats(arrival.data), message.first + message.second);
  const ByteView packed = arrival.data.view().subspan(4 * all.size());
  const bool alike = message.first == own.first.size() && message.second == own.second.size() &&
                     message.packed == own.packed.size() &&
                     message.scalar.has_value() == own.has_scalar;
  // A robust rule judges all values itself, as in the simulation.
  const bool fit_to_mix = run_.plan.robust.is_on() || is_finite(all);
  if (!alike || !fit_to_mix || !algorithm_->can_read(from, packed)) return std::nullopt;
  if (message.scalar && !algorithm_->can_weigh(*message.scalar)) return std::nullopt;
  return Message<float>{.first = all.first(message.first),
                        .second = all.subspan(message.first),
                        .packed = packed,
                        .scalar = message.scalar.value_or(0),
                        .has_scalar = message.scalar.has_value()};
}

// False: it is left out, and its weight is added to our own.
bool NeighbourProtocol::is_usual(Member from, const Message<float>& message) {
  if (run_.plan.robust.is_on()) return true;
  const Message<float>& own = algorithm_->message(0);
  const UsualDistance* far = nullptr;
  if (const auto unpacked = algorithm_->unpack(from, message)) {
    if (!usual_first_.accepts(from, unpacked->theirs, unpacked->own)) far = &usual_first_;
  } else if (!usual_first_.accepts(from, message.first, own.first)) {
    far = &usual_first_;
  } else if (!usual_second_.accepts(from, message.second, own.second)) {
    far = &usual_second_;
  }
  if (far == nullptr) return true;
  leave_out(from, fmt::format(
                      "{} sent a vector in exchange {} that is {:.3g} away from this peer's, more "
                      "than {:.3g}: left out, its weight is added to this peer's own",
                      names_[from], machine_.exchange(), far->distance(), far->limit()));
  return false;
}

void NeighbourProtocol::leave_out(Member from, const std::string& why) {
  if (!left_out_.is_first(from, machine_.exchange())) return;
  unsettled_ = true;
  say(LogLevel::kWarning, why + "; a line follows when this ends");
}

void NeighbourProtocol::perform(exchange::Mix& mix) {
  arrivals_.clear();
  messages_.clear();
  inbox_.clear();
  messages_.reserve(mix.inbox.size());
  const auto senders = machine_.matrix().senders(self_);
  for (std::size_t i = 0; i < senders.size(); ++i) {
    const Member from = senders[i].node;
    const Message<float>* message = nullptr;
    if (mix.inbox[i]) {
      arrivals_.push_back(std::move(*mix.inbox[i]));
      const auto read_message = read(from, arrivals_.back());
      if (!read_message) {
        leave_out(from, fmt::format("what {} sent in exchange {} is no message of {}: ignored",
                                    names_[from], mix.exchange, run_.plan.traits.name));
      } else if (is_usual(from, *read_message)) {
        messages_.push_back(*read_message);
        message = &messages_.back();
        if (auto line = left_out_.ended(from, machine_.exchange())) {
          unsettled_ = true;
          say(LogLevel::kWarning, std::move(*line));
        }
      }
    }
    inbox_.push_back({from, senders[i].weight, message});
  }
  compute(
      [this] {
        algorithm_->absorb(links(), inbox_, {0, run_.initial.size()});
        algorithm_->conclude(links(), inbox_);
      },
      [this] { mixed(); });
}

void NeighbourProtocol::mixed() {
  name_far();
  packed_.clear();
  arrivals_.clear();
  is_mixed_ = true;
  take_postponed();
  tell_machine(exchange::Mixed{.unsettled = std::exchange(unsettled_, false)});
  act(training::Advanced{});
}

// Who exceeded the bound of the robust rule in the exchange that was mixed.
void NeighbourProtocol::name_far() {
  const std::span<const Bounded> bounded = algorithm_->bounded();
  std::size_t entry = 0;
  for (const Received<float>& received : inbox_) {
    if (received.message == nullptr || entry == bounded.size()) continue;
    if (auto line = far_.note(received.from, machine_.exchange(), bounded[entry])) {
      say(LogLevel::kWarning, std::move(*line));
    }
    ++entry;
  }
}

void NeighbourProtocol::perform(exchange::Copy& copy) {
  act(training::CopyModel{std::move(copy.donors),
                          {.silent = machine_.donor_patience(),
                           .sending = Duration::max(),
                           .begins = machine_.donor_begins_within()}});
}

void NeighbourProtocol::perform(exchange::Finish&) {
  for (std::string& line : far_.finish()) say(LogLevel::kWarning, std::move(line));
  for (std::string& line : left_out_.finish()) say(LogLevel::kWarning, std::move(line));
  act(training::Finished{});
}

// --- what comes ---------------------------------------------------------------------------------

// Where mass is counted on edges, both ends must have begun to count together: a message bears its
// sender's incarnation, and the receiver's as far as the sender knows it.
bool NeighbourProtocol::agree_on_edge(Member from, const Incarnations& edge) {
  const std::uint32_t known = std::exchange(incarnations_[from], edge.sender);
  // Who was not known took nothing that was pushed: nothing named its incarnation.
  if (known != 0 && known != edge.sender) {
    algorithm_->forget(from);
    packed_.clear();  // what was pushed to its former self
  }
  return edge.receiver == incarnation_;
}

// Who sends to us and gets nothing from us, as on directed graphs, has to know us too.
void NeighbourProtocol::introduce(Member to) {
  if (!tags_edges_) return;
  const Introduction introduction{.edge = edge_to(to), .exchange = machine_.exchange()};
  act(peer::SendTransfer{to, {.content = introduction, .support = support(now_)}, {}});
}

// Whether it bears what its sender must be known by before anything of it counts.
bool NeighbourProtocol::introduces(Member from, const Incarnations& edge) const {
  const auto known = incarnations_.find(from);
  return known == incarnations_.end() || known->second != edge.sender;
}

// Of graphs that are drawn anew anybody may be a sender.
bool NeighbourProtocol::may_send(Member from, Exchange exchange) const {
  if (run_.topology->period() == 0) return true;
  const auto matrix = run_.topology->at(exchange);
  return std::ranges::binary_search(matrix->senders(self_), from, {}, &topologies::Weight::node);
}

Result<void> NeighbourProtocol::check(Member from, const VectorTransfer& transfer) const {
  if (tags_edges_ && std::holds_alternative<Introduction>(transfer.content)) return {};
  const auto* const message = std::get_if<MixMessage>(&transfer.content);
  const Incarnations* const edge = edge_of(transfer.content);
  const bool is_ours =
      message != nullptr && (edge != nullptr) == tags_edges_ && may_send(from, message->exchange);
  const auto is_of_use = [&] {
    return machine_.wants(from, message->exchange) || (tags_edges_ && introduces(from, *edge));
  };
  if (!is_ours || !is_of_use()) {
    return rejected("not-wanted", "this transfer is of no use here now");
  }
  const std::uint64_t size = run_.initial.size();
  const auto is_vector = [&](std::uint64_t count) { return count == 0 || count == size; };
  // The largest encoding is that of mass: 8 bytes an element and the weight.
  if (is_vector(message->first) && is_vector(message->second) &&
      message->packed <= 8 * (size + 1)) {
    return {};
  }
  return rejected("wrong-vectors",
                  fmt::format("{} announces vectors that are not of this model", names_[from]));
}

void NeighbourProtocol::handle(const peer::TransferRefused& refused) {
  const auto& [from, transfer] = refused;
  const auto* const message = std::get_if<MixMessage>(&transfer.content);
  if (message != nullptr && is_possible(from, message->exchange)) {
    tell_machine(exchange::MessageUnused{from, message->exchange, transfer.support});
  }
}

void NeighbourProtocol::take_postponed() {
  for (auto& [from, came] : std::exchange(postponed_, {})) handle(came);
}

void NeighbourProtocol::handle(peer::TransferReceived& came) {
  auto& [from, whole] = came;
  const auto* const message = std::get_if<MixMessage>(&whole.transfer.content);
  const Incarnations* const edge = edge_of(whole.transfer.content);
  if ((edge != nullptr) != tags_edges_) return;  // an earlier session took it
  if (tags_edges_) {
    const bool is_new = introduces(from, *edge);
    if (is_computing() && is_new) {  // with the edges: they cannot be changed now
      if (message != nullptr || !postponed_.contains(from)) {
        postponed_.insert_or_assign(from, std::move(came));
      }
      return;
    }
    const bool agreed = agree_on_edge(from, *edge);
    if (is_new) tell_machine(exchange::LinkUp{from});  // now it can be told that we know it
    if (!agreed) return;
  }
  if (message == nullptr) return;
  tell_machine(
      exchange::MessageReceived{{from, *message, whole.transfer.support, std::move(whole.data)}});
}

void NeighbourProtocol::handle(const peer::MessageReceived& came) {
  const Member from = came.from;
  if (const auto* ask = std::get_if<protocol::MixAsk>(&came.envelope.message)) {
    if (ask->epoch != epoch_ || !is_possible(from, ask->exchange)) return;
    tell_machine(exchange::Asked{from, ask->exchange, ask->support});
  } else if (const auto* answer = std::get_if<protocol::MixAnswer>(&came.envelope.message)) {
    if (answer->epoch != epoch_ || !is_possible(from, answer->exchange)) return;
    tell_machine(
        exchange::Answered{from, answer->asked, answer->exchange, answer->sent, answer->support});
  }
}

void NeighbourProtocol::handle(const peer::LinkUp& up) {
  const auto& [from, hello, is_new] = up;
  if (!is_new) return;
  introduce(from);
  if (is_possible(from, hello.exchange)) {
    tell_machine(exchange::HelloReceived{from, hello.exchange, hello.begun, hello.support});
  }
  // What was under way on an earlier link may be lost with it, though we have gone on. The message
  // that the others wait for with us is announced anew by the machine.
  const bool announces = machine_.state() == ExchangeMachine::State::kWaiting;
  for (const Packed& sent : sent_[from]) {
    if (announces && sent.message.exchange == machine_.exchange()) continue;
    if (!tags_edges_ && hello.begun && sent.message.exchange < hello.exchange) continue;
    send(from, sent);
  }
  tell_machine(exchange::LinkUp{from});
}

void NeighbourProtocol::handle(const training::Copied& copied) {
  const auto& [progress, givers, model] = copied;
  STARLING_CHECK(!is_computing() && model.size() == run_.initial.size());
  if (run_.plan.traits.loss_safe) {
    algorithm_->restart(model);
  } else {
    remake(model);
  }
  local_.forget_momentum();
  sent_.clear();  // of the model that is no more
  tell_machine(exchange::Copied{progress.exchange, givers});
}

bool is_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  bool all = true;
  for (const float value : values)
    all &= (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
  return all;
}

}  // namespace starling::gossip

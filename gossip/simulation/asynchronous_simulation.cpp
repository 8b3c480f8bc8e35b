// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/asynchronous_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace starling::gossip {
namespace {

TimePoint at(double seconds) { return TimePoint(from_seconds(seconds)); }

// The queue counts in nanoseconds; a change of a node's life must lie behind, not on, its event.
constexpr double kTick = 2e-9;
// Local phases in a row that a crash ended.
constexpr std::uint64_t kInterruptionsMax = 10'000;

}  // namespace

AsynchronousSimulation::AsynchronousSimulation(const Experiment& experiment, ComputePool& pool)
    : experiment_(experiment),
      pool_(pool),
      trainings_(experiment.trainings(pool.threads())),
      matrix_(experiment.topology->at(0)) {
  const std::uint64_t seed = experiment.options.run.seed;
  nodes_.reserve(experiment.nodes());
  for (Node node = 0; node < experiment.nodes(); ++node) {
    const std::vector<float> initial = experiment.initial_of(node);
    nodes_.push_back({.algorithm = make_async_algorithm<float>(experiment.plan, node, initial),
                      .rng = Rng({.seed = seed, .purpose = Purpose::kAlgorithm, .node = node}),
                      .phase = nullptr});
  }
  for (Node node = 0; node < experiment.nodes(); ++node) {
    const double appears = experiment.population.up_from(node, 0);
    if (appears == 0) {
      begin(node);
    } else if (appears < sim::kNever) {
      schedule(appears + kTick, Appeared{node});
    }
  }
}

// Threads may still be computing phases that borrow this object.
AsynchronousSimulation::~AsynchronousSimulation() {
  ending_ = true;
  wait_for_phases();
}

void AsynchronousSimulation::wait_for_phases() {
  for (NodeState& node : nodes_) {
    if (node.phase) node.phase->done.wait();
  }
}

double AsynchronousSimulation::now() const { return to_seconds(queue_.now().time_since_epoch()); }

void AsynchronousSimulation::schedule(double time, Event event) {
  queue_.schedule(at(time), std::move(event));
}

Result<void> AsynchronousSimulation::advance(std::uint64_t step, double until) {
  while (totals_.step < step && totals_.virtual_seconds < until) {
    const auto event = queue_.pop();
    if (!event) {
      return all_left(fmt::format("{} s", totals_.virtual_seconds));
    }
    totals_.virtual_seconds = now();
    STARLING_TRY(std::visit([this](const auto& happened) { return happen(happened); }, *event));
  }
  return {};
}

Links AsynchronousSimulation::links(Node node) {
  const std::uint64_t step = phases_ / experiment_.nodes();
  if (step != matrix_step_) {
    matrix_ = experiment_.topology->at(step);
    matrix_step_ = step;
  }
  return {node, matrix_->self(node), matrix_->senders(node), matrix_->receivers(node)};
}

Links AsynchronousSimulation::open_links(Node node) {
  Links open = links(node);
  open_receivers_.clear();
  if (nodes_[node].uplink_free <= now()) {
    std::ranges::copy_if(
        open.receivers, std::back_inserter(open_receivers_),
        [&](const topologies::Weight& receiver) {
          return nodes_[receiver.node].present && !queues_.busy(node, receiver.node, now()) &&
                 nodes_[receiver.node].queued < matrix_->senders(receiver.node).size();
        });
  }
  open.receivers = open_receivers_;
  return open;
}

void AsynchronousSimulation::go_on(Node node) {
  NodeState& state = nodes_[node];
  if (!state.present || state.phase) return;
  const NetOptions& options = experiment_.options;
  auto phase = std::make_shared<Phase>();
  const std::span<const float> model = state.algorithm->model();
  phase->base.assign(model.begin(), model.end());
  phase->trained = phase->base;
  // Who is faster than others goes beyond the run's steps, but in no phase by more than all of
  // them.
  phase->steps = static_cast<int>(std::min<std::uint64_t>(
      static_cast<std::uint64_t>(options.train.period_at(state.steps)), options.run.steps));
  phase->rate = train::learning_rate_at(options.train.train, static_cast<Round>(state.steps + 1),
                                        static_cast<Round>(options.run.steps));
  state.work = 0;
  for (int k = 0; k < phase->steps; ++k) {
    state.work += experiment_.population.step_seconds(node, state.steps + static_cast<unsigned>(k));
  }
  state.phase = phase;
  pool_.submit([this, node, phase, step = state.steps](unsigned thread) {
    if (ending_) return phase->promise.set_value();
    const auto training = trainings_->begin(node, thread, step);
    phase->loss_sum = training->steps(phase->trained, phase->rate, phase->steps);
    for (std::size_t i = 0; i < phase->base.size(); ++i) phase->trained[i] -= phase->base[i];
    phase->promise.set_value();
  });
  schedule(now() + state.work, PhaseEnded{node, phase});
}

Result<void> AsynchronousSimulation::happen(const PhaseEnded& event) {
  NodeState& state = nodes_[event.node];
  event.phase->done.wait();
  if (state.phase != event.phase) return {};  // the node went away in the middle
  state.phase = nullptr;
  interrupted_ = 0;
  const auto steps = static_cast<std::uint64_t>(event.phase->steps);
  state.steps += steps;
  totals_.node_steps += steps;
  totals_.step = totals_.node_steps / experiment_.nodes();
  if (!event.phase->loss_sum) return event.phase->loss_sum.error();
  totals_.loss_sum += *event.phase->loss_sum;
  if (!std::isfinite(*event.phase->loss_sum)) {
    return rejected("diverged",
                    fmt::format("the loss of node {} is not finite in its step {}: lower "
                                "train.learning-rate or set train.clip-norm",
                                event.node, state.steps));
  }
  const bool waited = state.algorithm->waiting();
  transmit(event.node,
           state.algorithm->trained(event.phase->trained, open_links(event.node), state.rng));
  ++phases_;
  // Where nothing is lost and nobody leaves, every reply comes.
  if (!waited && state.algorithm->waiting() && experiment_.lossy()) {
    state.asked = now();
    const double patience = state.patience.seconds(state.work, experiment_.network.deadline());
    schedule(now() + patience, TimedOut{event.node, ++state.waits});
  }
  go_on(event.node);
  return {};
}

Result<void> AsynchronousSimulation::happen(const Arrived& event) {
  NodeState& state = nodes_[event.to];
  --state.queued;
  if (!state.present) {
    ++totals_.traffic.lost;
    return {};
  }
  const bool waited = state.algorithm->waiting();
  transmit(event.to, state.algorithm->receive(event.from, *event.message));
  const bool answered = waited && !state.algorithm->waiting();
  if (answered) state.patience.learn(now() - state.asked);
  ++totals_.traffic.arrived;
  totals_.traffic.staleness += state.steps - std::min(state.steps, event.receiver_steps);
  // A reply that was given up on is of no use.
  const bool is_reply = event.message->kind == AsyncMessage<float>::Kind::kReply;
  totals_.traffic.late += is_reply && !answered ? 1 : 0;
  return {};
}

Result<void> AsynchronousSimulation::happen(const TimedOut& event) {
  NodeState& state = nodes_[event.node];
  if (state.waits != event.wait || !state.present || !state.algorithm->waiting()) return {};
  state.algorithm->unanswered();
  state.patience.give_up();
  return {};
}

std::optional<Node> AsynchronousSimulation::donor(Node node) {
  for (const topologies::Weight& sender : links(node).senders) {
    if (nodes_[sender.node].present) return sender.node;
  }
  const auto other = std::ranges::find_if(nodes_, &NodeState::present);
  if (other == nodes_.end()) return std::nullopt;
  return static_cast<Node>(other - nodes_.begin());
}

// Who comes late or comes back begins with the model of somebody who is there.
Result<void> AsynchronousSimulation::happen(const Appeared& event) {
  NodeState& state = nodes_[event.node];
  const auto from = donor(event.node);
  if (from) {
    state.algorithm->restart(nodes_[*from].algorithm->model());
    totals_.traffic += {.messages = 1, .bytes_sent = 4 * experiment_.parameters(), .arrived = 1};
  }
  trainings_->forget_momentum(event.node);
  begin(event.node);
  return {};
}

void AsynchronousSimulation::begin(Node node) {
  nodes_[node].present = true;
  const double goes = experiment_.population.up_until(node, now());
  if (goes < sim::kNever) schedule(goes + kTick, Went{node});
  go_on(node);
}

Result<void> AsynchronousSimulation::happen(const Went& event) {
  NodeState& state = nodes_[event.node];
  state.present = false;
  if (state.phase) {
    state.phase->done.wait();  // its rows' order goes on from there
    state.phase = nullptr;
    if (++interrupted_ == kInterruptionsMax) return no_progress(totals_.step);
  }
  state.algorithm->unanswered();  // it may come back where nobody is there to begin from
  state.patience = {};
  ++state.waits;
  const double back = experiment_.population.up_from(event.node, now());
  if (back < sim::kNever) schedule(back + kTick, Appeared{event.node});
  return {};
}

// A node's link sends one message after the other, and takes them in in the order in which they
// arrive at it.
void AsynchronousSimulation::transmit(Node from, const std::vector<AsyncSend<float>>& sends) {
  NodeState& sender = nodes_[from];
  for (const AsyncSend<float>& send : sends) {
    const std::uint64_t bytes = send.message->bytes();
    const double out = experiment_.network.transfer_seconds(from, bytes);
    const double in = experiment_.network.transfer_seconds(send.to, bytes);
    const double sent = std::max(now(), sender.uplink_free) + out;
    const sim::Network::Message message{
        .from = from, .to = send.to, .number = sender.sent++, .bytes = bytes, .sent = sent};
    const auto passage = experiment_.network.pass(message);
    const double again = experiment_.network.transfer_seconds(from, passage.resent_bytes);
    sender.uplink_free = sent + again;
    totals_.traffic += {.messages = 1,
                        .bytes_sent = bytes + passage.resent_bytes,
                        .lost = passage.lost ? std::uint64_t{1} : 0};
    if (passage.lost) continue;
    const double reaches =
        queues_.passes(experiment_.network, message, sent + again + passage.seconds);
    schedule(reaches, Reached{.from = from,
                              .to = send.to,
                              .message = send.message,
                              .receiver_steps = nodes_[send.to].steps,
                              .slower = std::max(0.0, in - out)});
  }
}

Result<void> AsynchronousSimulation::happen(const Reached& event) {
  NodeState& state = nodes_[event.to];
  ++state.queued;
  const double seconds = experiment_.network.transfer_seconds(event.to, event.message->bytes());
  // The link worked on it while it came in, unless another message was before it.
  state.downlink_free = std::max(now() + event.slower, state.downlink_free + seconds);
  schedule(state.downlink_free, Arrived{event.from, event.to, event.message, event.receiver_steps});
  return {};
}

// Phases are written when they have been computed. Those that began when this object was made end
// before others are read in their place.
bool AsynchronousSimulation::archive(Archive& state) {
  ending_ = state.reading();
  wait_for_phases();
  ending_ = false;
  totals_.archive(state);
  state(phases_);
  state(interrupted_);
  queues_.archive(state);
  for (NodeState& node : nodes_) {
    if (!archive_node(state, node)) return false;
  }
  trainings_->archive(state);
  archive_events(state);
  return true;
}

std::shared_ptr<AsynchronousSimulation::Phase> AsynchronousSimulation::ended_phase() {
  auto phase = std::make_shared<Phase>();
  phase->promise.set_value();
  return phase;
}

bool AsynchronousSimulation::archive_node(Archive& state, NodeState& node) {
  if (!node.algorithm->archive(state)) return false;
  node.rng.archive(state);
  for (std::uint64_t* number : {&node.steps, &node.sent, &node.waits}) state(*number);
  for (double* seconds : {&node.work, &node.asked, &node.uplink_free, &node.downlink_free}) {
    state(*seconds);
  }
  node.patience.archive(state);
  state(node.queued);
  state(node.present);
  bool at_work = node.phase != nullptr;
  state(at_work);
  if (state.reading()) node.phase = at_work ? ended_phase() : nullptr;
  if (!at_work) return true;
  Phase& phase = *node.phase;
  // One that failed ends the run: there is nothing to go on with.
  if (!phase.loss_sum) phase.trained.clear();
  state.vector(phase.trained);
  state.expect(phase.trained.size() == experiment_.parameters());
  state(phase.steps);
  double loss_sum = phase.loss_sum ? *phase.loss_sum : 0;
  state(loss_sum);
  if (phase.loss_sum) phase.loss_sum = loss_sum;
  return true;
}

void AsynchronousSimulation::archive_events(Archive& state) {
  std::vector<SharedMessage> messages;  // each once, however many receivers it has
  std::vector<std::pair<TimePoint, Event>> events;
  queue_.for_each([&](TimePoint time, const Event& event) {
    events.emplace_back(time, event);
    std::visit(
        [&](const auto& happened) {
          if constexpr (requires { happened.message; }) messages.push_back(happened.message);
        },
        event);
  });
  std::ranges::sort(messages);
  messages.erase(std::ranges::unique(messages).begin(), messages.end());
  messages.resize(state.count(messages.size(), 1));
  for (SharedMessage& message : messages) {
    auto copy = message ? std::make_shared<AsyncMessage<float>>(*message)
                        : std::make_shared<AsyncMessage<float>>();
    copy->archive(state);
    if (state.reading()) message = std::move(copy);
  }
  auto now = queue_.now().time_since_epoch().count();
  state(now);
  if (state.reading()) queue_.resume_at(TimePoint(Duration(now)));
  events.resize(state.count(events.size(), 1));
  for (auto& [time, event] : events) {
    auto at = time.time_since_epoch().count();
    state(at);
    archive_event(state, event, messages);
    if (!state.good()) return;
    if (state.reading()) queue_.schedule(TimePoint(Duration(at)), std::move(event));
  }
}

// An event with nothing in it, of the kind with this number.
AsynchronousSimulation::Event AsynchronousSimulation::blank_event(std::size_t kind) {
  switch (kind) {
    case 0:
      return PhaseEnded{};
    case 1:
      return Reached{};
    case 2:
      return Arrived{};
    case 3:
      return TimedOut{};
    case 4:
      return Appeared{};
    default:
      return Went{};
  }
}

void AsynchronousSimulation::archive_event(Archive& state, Event& event,
                                           std::span<const SharedMessage> messages) {
  auto kind = static_cast<std::uint8_t>(event.index());
  state(kind);
  state.expect(kind < std::variant_size_v<Event>);
  if (state.reading()) event = blank_event(kind);
  const auto archive_node_of = [&](Node& node) {
    state(node);
    state.expect(node < nodes_.size());
    if (!state.good()) node = 0;
  };
  std::visit(
      [&](auto& happened) {
        if constexpr (requires { happened.node; }) archive_node_of(happened.node);
        if constexpr (requires { happened.phase; }) {
          // Of a node that went away in the middle only its time counts.
          std::shared_ptr<Phase> current = nodes_[happened.node].phase;
          bool is_current = happened.phase != nullptr && happened.phase == current;
          state(is_current);
          state.expect(!is_current || current != nullptr);
          if (state.reading()) happened.phase = is_current ? current : ended_phase();
        }
        if constexpr (requires { happened.message; }) {
          archive_node_of(happened.from);
          archive_node_of(happened.to);
          auto number = static_cast<std::uint64_t>(
              std::ranges::lower_bound(messages, happened.message) - messages.begin());
          state(number);
          state.expect(number < messages.size());
          if (state.reading() && state.good()) happened.message = messages[number];
          state(happened.receiver_steps);
        }
        if constexpr (requires { happened.slower; }) state(happened.slower);
        if constexpr (requires { happened.wait; }) state(happened.wait);
      },
      event);
}

void AsynchronousSimulation::trace(Sha256& hash) const {
  for (const NodeState& node : nodes_) {
    hash.update(std::as_bytes(std::span(&node.steps, 1)));
    hash.update(std::as_bytes(std::span(&node.sent, 1)));
  }
}

}  // namespace starling::gossip

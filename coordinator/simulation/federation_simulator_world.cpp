// SPDX-License-Identifier: Apache-2.0
// How a simulated federation meets its network and nodes: messages on links, times of training,
// clients that come and go, splits.
#include <algorithm>

#include "coordinator/simulation/federation_simulator.h"
#include "core/net/frame.h"
#include "core/train/local_trainer.h"
#include "core/wire/codec.h"

namespace starling::coordinator {
namespace {

SimulatedWorld::Kind kind_of(const protocol::Message& message) {
  if (std::holds_alternative<protocol::Chunk>(message)) return SimulatedWorld::Kind::kBulk;
  const bool pulse = std::holds_alternative<protocol::Ping>(message) ||
                     std::holds_alternative<protocol::Pong>(message);
  return pulse ? SimulatedWorld::Kind::kPulse : SimulatedWorld::Kind::kWord;
}

TimePoint at(double seconds) { return TimePoint(from_seconds(seconds)); }

}  // namespace

Result<void> FederationSimulator::begin_world() {
  if (options_.world && context_->job.fallback.enabled()) {
    std::vector<SimulatedFallback::Member> members;
    for (const auto& node : nodes_) members.push_back({node->name, node->data.training});
    STARLING_ASSIGN(fallback_,
                    SimulatedFallback::make({scheduler_, pool_, *options_.world,
                                             [this](const Error& error) { fail(error); }},
                                            *context_, run_, std::move(members)));
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) appear(i, 0);
  if (!options_.world) return {};
  for (const SimulatedWorld::Absence& absence : options_.world->absences()) {
    scheduler_.schedule(at(absence.from), [this, lasts = from_seconds(absence.seconds)] {
      if (core_) kill_coordinator(lasts);
    });
  }
  for (const sim::Network::Split& split : options_.world->network().splits()) {
    scheduler_.schedule(at(split.from), [this] { separate(); });
  }
  return {};
}

// `time` is the event's own, which the clock rounds.
void FederationSimulator::appear(std::size_t index, double time) {
  if (!options_.world) return start_client(index);
  const sim::Population& population = options_.world->population();
  const auto node = static_cast<std::uint32_t>(index);
  const double there = population.up_from(node, time);
  if (there == sim::kNever) return;
  if (there > time) {
    return scheduler_.schedule(at(there), [this, index, there] { appear(index, there); });
  }
  if (!nodes_[index]->process) start_client(index);
  const double gone = population.up_until(node, time);
  if (gone == sim::kNever) return;
  scheduler_.schedule(at(gone), [this, index, gone] { disappear(index, gone); });
}

void FederationSimulator::disappear(std::size_t index, double time) {
  if (nodes_[index]->process) kill_client(index);
  appear(index, time);
}

void FederationSimulator::separate() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!options_.world->separated_until(static_cast<std::uint32_t>(i), seconds_now())) continue;
    if (!nodes_[i]->session) continue;
    ++disconnects_;
    break_session(i, retry("connection-lost", "the network is split"));
  }
}

Duration FederationSimulator::training_time(std::size_t index) {
  double seconds = 0;
  if (options_.faults.training_max > Duration::zero()) {
    seconds = fault_rng_.uniform(0, to_seconds(options_.faults.training_max));
  }
  const std::size_t rows = nodes_[index]->data.training.size();
  const train::TrainOptions& training = context_->job.training.train;
  if (options_.world && (rows > 0 || training.local_steps > 0)) {
    const std::uint64_t steps = train::local_steps(training, std::max<std::size_t>(rows, 1));
    seconds += options_.world->train_seconds(static_cast<std::uint32_t>(index), steps);
  }
  return from_seconds(seconds);
}

void FederationSimulator::transmit(std::size_t index, SessionId session, Direction direction,
                                   const protocol::Envelope& envelope) {
  if (hooks_.on_message) hooks_.on_message(envelope);
  if (direction == Direction::kToCoordinator) upload_bytes_ += envelope.payload.size();
  auto shared = std::make_shared<protocol::Envelope>(envelope);
  if (options_.world) return carry(index, session, direction, std::move(shared));
  const SimulatedFaults& faults = options_.faults;
  Node& node = *nodes_[index];
  TimePoint arrival = scheduler_.now();
  if (faults.hold_back && direction == Direction::kToCoordinator) {
    const auto held_back = faults.hold_back(node.name, envelope.message);
    if (!held_back) return;
    arrival = node.held_until = std::max(node.held_until, arrival) + *held_back;
  }
  if (faults.latency_max.count() > 0) {
    arrival += from_seconds(fault_rng_.uniform(0, to_seconds(faults.latency_max)));
    arrival = node.link_free_at = std::max(node.link_free_at, arrival);
  }
  scheduler_.schedule(arrival, [this, index, session, direction, shared = std::move(shared)] {
    deliver(index, session, direction, *shared);
  });
}

// A message counts what it has as a frame; TLS and TCP add about 3 % that are not counted.
void FederationSimulator::carry(std::size_t index, SessionId session, Direction direction,
                                std::shared_ptr<protocol::Envelope> envelope) {
  const auto header = wire::encode_header(envelope->message);
  if (!header) return fail(header.error());
  const std::uint64_t bytes = net::kHeadBytes + header->size() + envelope->payload.size();
  const auto node = static_cast<std::uint32_t>(index);
  const SimulatedWorld::Message message =
      options_.world->send(node, direction, kind_of(envelope->message), bytes, seconds_now());
  scheduler_.schedule(at(message.begins), [this, index, node, session, direction, message,
                                           envelope = std::move(envelope)] {
    if (nodes_[index]->session != session) return;  // it broke on the way
    const double whole = options_.world->receive(node, message);
    scheduler_.schedule(at(whole), [this, index, session, direction, envelope] {
      deliver(index, session, direction, *envelope);
    });
  });
}

}  // namespace starling::coordinator

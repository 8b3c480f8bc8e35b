// SPDX-License-Identifier: Apache-2.0
// The clients' processes of a simulated federation: their machines, their disks and their training.
#include <algorithm>

#include "coordinator/federation_simulator.h"

namespace starling::coordinator {

void FederationSimulator::start_client(std::size_t index) {
  Node& node = nodes_[index];
  std::vector<client::PendingUpdate> pending;
  for (const auto& [task, update] : node.disk) pending.push_back(update);
  const client::ClientOptions options{
      .software = "simulated", .rows = node.rows, .transfer = options_.transfer};
  const Rng backoff({.seed = options_.faults.seed,
                     .purpose = Purpose::kBackoff,
                     .node = hash_name(node.name),
                     .round = static_cast<std::uint32_t>(++node.incarnation)});
  node.machine = std::make_unique<client::ClientMachine>(options, backoff, std::move(pending));
  to_client(index, client::Tick{});
}

void FederationSimulator::kill_client(std::size_t index) {
  ++crashes_;
  Node& node = nodes_[index];
  for (auto& [task, training] : node.trainings) {
    training->stop = true;
    if (training->submitted) --in_flight_;
    training->submitted = true;  // nobody will start or await it any more
  }
  node.trainings.clear();
  node.machine.reset();
  node.tick_at.reset();
  ++node.incarnation;
  break_session(index, retry("connection-lost", "the client went away"));
  if (fallback_) fallback_->died(index);
}

void FederationSimulator::crash_client(std::size_t index) {
  kill_client(index);
  queue_.schedule(queue_.now() + options_.faults.restart_after, [this, index] {
    if (!nodes_[index].machine) start_client(index);
  });
}

void FederationSimulator::to_client(std::size_t index, client::Event event) {
  Node& node = nodes_[index];
  if (!node.machine || finished_) return;
  for (client::Action& action : node.machine->on(std::move(event), queue_.now())) {
    perform(index, action);
  }
  schedule_client_tick(index);
}

void FederationSimulator::schedule_client_tick(std::size_t index) {
  Node& node = nodes_[index];
  const auto due = node.machine->next_deadline();
  if (!due || (node.tick_at && *node.tick_at <= *due)) return;
  node.tick_at = due;
  queue_.schedule(*due, [this, index, due, incarnation = node.incarnation] {
    Node& ticking = nodes_[index];
    if (ticking.incarnation != incarnation || ticking.tick_at != due) return;
    ticking.tick_at.reset();
    to_client(index, client::Tick{});
  });
}

void FederationSimulator::perform(std::size_t index, client::Action& action) {
  Node& node = nodes_[index];
  if (std::holds_alternative<client::Dial>(action)) {
    const double takes =
        options_.world ? options_.world->connect_seconds(static_cast<std::uint32_t>(index)) : 0;
    queue_.schedule(queue_.now() + from_seconds(takes),
                    [this, index, incarnation = node.incarnation] {
                      if (nodes_[index].incarnation == incarnation) connect(index);
                    });
  } else if (const auto* hang_up = std::get_if<client::HangUp>(&action)) {
    break_session(index, hang_up->reason);
  } else if (auto* send = std::get_if<client::Send>(&action)) {
    if (node.session) {
      transmit(index, *node.session, Direction::kToCoordinator, std::move(send->envelope));
    }
  } else if (auto* training = std::get_if<client::Train>(&action)) {
    train(index, *training);
  } else if (const auto* cancel = std::get_if<client::CancelTraining>(&action)) {
    if (const auto found = node.trainings.find(cancel->task); found != node.trainings.end()) {
      found->second->stop = true;
    }
  } else if (auto* keep = std::get_if<client::StoreUpdate>(&action)) {
    const TaskId task = keep->update.head.task;
    node.disk.insert_or_assign(task, std::move(keep->update));
    queue_.schedule(queue_.now(), [this, index, task, incarnation = node.incarnation] {
      if (nodes_[index].incarnation == incarnation) {
        to_client(index, client::UpdateStored{task, Result<void>()});
      }
    });
  } else if (const auto* forget = std::get_if<client::ForgetUpdate>(&action)) {
    node.disk.erase(forget->task);
  }  // Say: a thousand clients' diaries interest nobody
}

void FederationSimulator::connect(std::size_t index) {
  Node& node = nodes_[index];
  if (!machine_) {
    return to_client(index, client::Disconnected{retry("cannot-connect", "nobody listens")});
  }
  if (options_.world &&
      options_.world->separated_until(static_cast<std::uint32_t>(index), seconds_now())) {
    return to_client(index, client::Disconnected{retry("cannot-connect", "the network is split")});
  }
  const SessionId session(++last_session_);
  node.session = session;
  node.link_free_at = queue_.now();
  node_of_session_[session] = index;
  to_coordinator(SessionOpened{session, node.name});
  to_client(index, client::Connected{});
}

// Trainings that start at one virtual time are computed side by side, a few ahead of the one whose
// turn it is, so that finished updates do not pile up.
void FederationSimulator::train(std::size_t index, client::Train& action) {
  Node& node = nodes_[index];
  const TaskId task = action.plan.task;
  auto training = std::make_shared<Training>();
  if (fallback_) training->instead = fallback_->take_training(index, action);
  training->plan = std::move(action.plan);
  training->base = std::move(action.base);
  node.trainings.insert_or_assign(task, training);
  waiting_.emplace_back(index, training);
  submit_waiting();
  const Duration takes = training->instead ? Duration{} : training_time(index);
  queue_.schedule(queue_.now() + takes, [this, index, task, incarnation = node.incarnation] {
    finish_training(index, incarnation, task);
  });
}

void FederationSimulator::submit_waiting() {
  while (!waiting_.empty() && in_flight_ < 2 * std::size_t{options_.threads}) {
    const auto [index, training] = std::move(waiting_.front());
    waiting_.pop_front();
    if (!training->submitted) submit(index, training);
  }
}

void FederationSimulator::submit(std::size_t index, const std::shared_ptr<Training>& training) {
  training->submitted = true;
  ++in_flight_;
  const Node& node = nodes_[index];
  pool_.submit([this, training, name = node.name, data = node.data](unsigned worker) {
    client::BuiltinTrainer own(name, data, caches_[worker]);
    client::Trainer& trainer = training->instead ? *training->instead : own;
    training->promise.set_value(
        client::make_update(training->plan, training->base, trainer, false, training->stop));
  });
}

void FederationSimulator::finish_training(std::size_t index, std::uint64_t incarnation,
                                          TaskId task) {
  Node& node = nodes_[index];
  if (node.incarnation != incarnation) return;
  const auto found = node.trainings.find(task);
  if (found == node.trainings.end()) return;
  const std::shared_ptr<Training> training = std::move(found->second);
  node.trainings.erase(found);
  if (!training->submitted) submit(index, training);
  auto update = training->promise.get_future().get();
  --in_flight_;
  submit_waiting();
  if (update && options_.faults.forge) options_.faults.forge(node.name, *update);
  to_client(index, client::TrainingFinished{task, std::move(update)});
}

}  // namespace starling::coordinator

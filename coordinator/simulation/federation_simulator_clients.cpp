// SPDX-License-Identifier: Apache-2.0
// The clients' processes of a simulated federation, each the devices' shell around their machine.
#include "coordinator/simulation/federation_simulator.h"
#include "core/base/check.h"
#include "core/client/abilities.h"
#include "core/wire/update_head.h"

namespace starling::coordinator {

class FederationSimulator::ClientProcess final : private client::Link {
 public:
  ClientProcess(FederationSimulator& world, std::size_t index, client::Leftovers leftovers)
      : world_(world),
        index_(index),
        pending_(files(world, index)),
        training_(world.processors_, [this] { return training_time(); }),
        shell_({world.scheduler_, *this, pending_, world.immediate_, training_, make_update()},
               options(node(), world),
               Rng({.seed = world.options_.faults.seed,
                    .purpose = Purpose::kBackoff,
                    .node = hash_name(node().name),
                    .round = static_cast<std::uint32_t>(node().incarnation)}),
               std::move(leftovers), handlers()) {}

  static client::PendingStore files(FederationSimulator& world, std::size_t index) {
    return {world.nodes_[index]->disk,
            "pending",
            wire::kUpdateHeads,
            {.updates_max = client::ClientOptions{}.pending_updates_max}};
  }
  client::ClientShell& shell() { return shell_; }

 private:
  static client::ClientOptions options(const Node& node, const FederationSimulator& world) {
    client::ClientOptions options{.software = "simulated",
                                  .rows = node.rows,
                                  .abilities = abilities(node, world),
                                  .transfer = world.options_.transfer};
    if (const auto lacks = world.options_.lacks.find(node.name);
        lacks != world.options_.lacks.end()) {
      std::erase_if(options.abilities,
                    [&](const std::string& word) { return lacks->second.contains(word); });
    }
    if (node.data.held_out) options.held_out = node.data.held_out->size();
    return options;
  }
  static std::vector<std::string> abilities(const Node& node, const FederationSimulator& world) {
    if (world.options_.trainers) return world.options_.trainers->abilities;
    return client::abilities_of(*world.options_.strategies, node.data.held_out.has_value());
  }
  Node& node() { return *world_.nodes_[index_]; }

  void dial() override { world_.dial(index_); }
  void hang_up() override {
    world_.break_session(index_, retry("connection-lost", "the client hung up"), false);
  }
  void send(const protocol::Envelope& envelope) override {
    if (const auto session = node().session) {
      world_.transmit(index_, *session, Direction::kToCoordinator, envelope);
    }
  }

  client::ClientShell::Handlers handlers() {
    client::ClientShell::Handlers handlers;
    // Training takes time; evaluating and merging do not.
    handlers.on_train = [this](const client::Train& train) {
      auto instead = world_.fallback_ ? world_.fallback_->take_training(index_, train)
                                      : std::shared_ptr<client::Trainer>();
      node().at_once = instead != nullptr || train.plan.kind == protocol::TaskKind::kEvaluate;
      return instead;
    };
    handlers.on_disk_broken = [this](const Error&) {
      world_.scheduler_.post([&world = world_, index = index_, at = node().incarnation] {
        if (world.nodes_[index]->incarnation == at) world.crash_client(index);
      });
    };
    return handlers;
  }

  // On any thread, and perhaps when this process is gone.
  client::MakeUpdate make_update() {
    const SimulationJournal::TrainingKey key{.client = index_, .incarnation = node().incarnation};
    auto compute = [name = node().name, data = node().data, &caches = world_.caches_,
                    &options = world_.options_](const client::Train& task, client::Trainer* instead,
                                                const std::atomic<bool>& stop, unsigned worker) {
      std::unique_ptr<client::Trainer> own;
      if (instead == nullptr && options.trainers) own = options.trainers->make(name, worker);
      client::BuiltinTrainer builtin(name, data, caches[worker]);
      client::Trainer* const trainer = instead != nullptr ? instead : own ? own.get() : &builtin;
      const auto& forge = options.faults.forge;
      auto update = client::make_update(
          task, *trainer, {.verify_inputs = false, .strategies = options.strategies}, stop);
      if (update && forge) forge(name, *update);
      return update;
    };
    SimulationJournal* const journal = world_.options_.journal;
    if (journal == nullptr) return compute;
    return [key, compute, journal](const client::Train& task, client::Trainer* instead,
                                   const std::atomic<bool>& stop, unsigned worker) {
      auto its_key = key;
      its_key.task = task.plan.task.value();
      return journal->train(its_key, task, [&] { return compute(task, instead, stop, worker); });
    };
  }
  Duration training_time() {
    return std::exchange(node().at_once, false) ? Duration{} : world_.training_time(index_);
  }

  FederationSimulator& world_;
  const std::size_t index_;
  const client::PendingStore pending_;
  sim::TimedComputation training_;
  client::ClientShell shell_;
};

FederationSimulator::Node::Node(std::uint32_t id, std::string its_name, client::ClientData its_data,
                                std::uint64_t its_rows)
    : name(std::move(its_name)), data(std::move(its_data)), rows(its_rows), disk(id) {}

FederationSimulator::Node::~Node() = default;

void FederationSimulator::add_client(const std::string& name, client::ClientData data) {
  STARLING_CHECK(!node_of_.contains(name));
  const std::size_t index = nodes_.size();
  node_of_[name] = index;
  const auto lie = options_.faults.announces.find(name);
  const std::uint64_t rows =
      lie == options_.faults.announces.end() ? data.training.size() : lie->second;
  nodes_.push_back(
      std::make_unique<Node>(static_cast<std::uint32_t>(index), name, std::move(data), rows));
  Node& node = *nodes_.back();
  node.disk.set_fault_injector(
      [this, &node](const auto& path) { return draw_fault(node.name, path); });
}

// Of the models that clients fetch or train.
std::set<Round> FederationSimulator::rounds_at_work() const {
  std::set<Round> rounds;
  for (const auto& node : nodes_) {
    const protocol::RoundPlan* plan =
        node->process ? node->process->shell().machine().plan() : nullptr;
    if (plan != nullptr) rounds.insert(plan->base.round);
  }
  return rounds;
}

void FederationSimulator::visit_held_states(const SimulationJournal::VisitState& visit) {
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    ClientProcess::files(*this, i).visit_states(visit);
}

void FederationSimulator::start_client(std::size_t index) {
  ++nodes_[index]->incarnation;
  run_turn([&] {
    auto leftovers = ClientProcess::files(*this, index).load(log_);
    if (!leftovers) return crash_client(index);  // and started again
    nodes_[index]->process = std::make_unique<ClientProcess>(*this, index, std::move(*leftovers));
    to_client(index, client::Tick{});
  });
}

void FederationSimulator::kill_client(std::size_t index) {
  ++crashes_;
  Node& node = *nodes_[index];
  node.process.reset();
  ++node.incarnation;
  break_session(index, retry("connection-lost", "the client went away"));
  if (fallback_) fallback_->died(index);
}

void FederationSimulator::crash_client(std::size_t index) {
  kill_client(index);
  scheduler_.schedule(scheduler_.now() + options_.faults.restart_after, [this, index] {
    if (!nodes_[index]->process) start_client(index);
  });
}

void FederationSimulator::to_client(std::size_t index, client::Event event) {
  if (!nodes_[index]->process || finished_) return;
  run_turn([&] { nodes_[index]->process->shell().handle(std::move(event)); });
}

void FederationSimulator::dial(std::size_t index) {
  const auto client = static_cast<std::uint32_t>(index);
  const double takes = options_.world ? options_.world->connect_seconds(client, seconds_now()) : 0;
  scheduler_.schedule(scheduler_.now() + from_seconds(takes),
                      [this, index, incarnation = nodes_[index]->incarnation] {
                        if (nodes_[index]->incarnation == incarnation) connect(index);
                      });
}

void FederationSimulator::connect(std::size_t index) {
  Node& node = *nodes_[index];
  if (!core_) {
    return to_client(index, client::Disconnected{retry("cannot-connect", "no process listens")});
  }
  if (options_.world &&
      options_.world->separated_until(static_cast<std::uint32_t>(index), seconds_now())) {
    return to_client(index, client::Disconnected{retry("cannot-connect", "the network is split")});
  }
  const SessionId session(++last_session_);
  node.session = session;
  node.link_free_at = node.held_until = scheduler_.now();
  node_of_session_[session] = index;
  to_coordinator(SessionOpened{session, node.name});
  if (node.session == session) to_client(index, client::Connected{});
}

}  // namespace starling::coordinator

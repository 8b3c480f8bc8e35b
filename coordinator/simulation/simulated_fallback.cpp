// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulated_fallback.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "coordinator/job/fallback_network.h"
#include "core/client/given_model.h"
#include "core/train/local_trainer.h"

namespace starling::coordinator {

using namespace gossip::fallback;

namespace {

constexpr double kExchangeSecondsMin = 1e-3;  // virtual time must pass

}  // namespace

SimulatedFallback::SimulatedFallback(World world, const RunContext& context,
                                     gossip::FallbackTerms terms)
    : world_(std::move(world)),
      terms_(terms),
      training_(fallback_options(context.job).train.train),
      job_training_(context.job.training.train),
      model_(context.model) {}

Result<std::unique_ptr<SimulatedFallback>> SimulatedFallback::make(World world,
                                                                   const RunContext& context,
                                                                   RunId run,
                                                                   std::vector<Member> members) {
  const gossip::NetOptions options = fallback_options(context.job);
  gossip::FallbackTerms terms = fallback_terms(run, context.job);
  auto made =
      std::unique_ptr<SimulatedFallback>(new SimulatedFallback(std::move(world), context, terms));
  const auto nodes = static_cast<topologies::Node>(members.size());
  STARLING_ASSIGN(made->topology_, topologies::Topology::make({.spec = options.topology.spec,
                                                               .nodes = nodes,
                                                               .seed = options.topology_seed()}));
  STARLING_ASSIGN(made->plan_,
                  gossip::plan_algorithm(options.algorithm, {made->topology_.get(), true}, nodes,
                                         options.run.seed));
  for (unsigned worker = 0; worker < made->world_.pool.threads(); ++worker) {
    made->steppers_.emplace_back(made->model_, made->training_);
    made->steppers_.back().begin(static_cast<std::size_t>(made->training_.batch_size));
  }
  // A roster is in the order of names.
  made->member_at_.resize(members.size());
  std::iota(made->member_at_.begin(), made->member_at_.end(), std::size_t{0});
  std::ranges::sort(made->member_at_, {}, [&](std::size_t m) { return members[m].name; });
  std::vector<std::uint32_t> places(members.size());
  for (std::uint32_t place = 0; place < nodes; ++place) places[made->member_at_[place]] = place;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const Rng rng({.seed = options.run.seed, .purpose = Purpose::kBatches, .node = places[m]});
    made->nodes_.emplace_back(
        places[m], gossip::NodeData(members[m].rows, made->training_, rng, made->steppers_[0]),
        static_cast<double>(members[m].rows.size()), made->world_.scheduler.now());
  }
  return made;
}

// --- the machines -------------------------------------------------------------------------------

void SimulatedFallback::see(std::size_t member, const protocol::Message& message) {
  if (std::holds_alternative<protocol::Welcome>(message)) {
    on(member, CoordinatorConnected{});
    on(member, TermsChanged{terms_});
  } else if (const auto* committed = std::get_if<protocol::RoundCommitted>(&message)) {
    on(member, TaskSettled{committed->task, true});
  } else if (const auto* ended = std::get_if<protocol::TaskEnded>(&message)) {
    on(member, TaskSettled{ended->task, false});
  }
}

void SimulatedFallback::lost(std::size_t member) { on(member, CoordinatorLost{}); }

void SimulatedFallback::died(std::size_t member) {
  (void)pause(nodes_[member]);
  nodes_[member].machine = gossip::FallbackMachine(world_.scheduler.now());
}

std::shared_ptr<client::Trainer> SimulatedFallback::take_training(std::size_t member,
                                                                  const client::Train& train) {
  if (train.plan.kind == protocol::TaskKind::kEvaluate) return nullptr;
  const auto rows = static_cast<std::size_t>(nodes_[member].rows);
  on(member, TaskOffered{.task = train.plan.task,
                         .base = train.plan.base,
                         .model = train.base,
                         .rounds = train.plan.rounds,
                         .steps = train::local_steps(job_training_, rows)});
  return std::exchange(nodes_[member].merging, nullptr);
}

void SimulatedFallback::on(std::size_t member, gossip::fallback::Event event) {
  gossip::FallbackMachine& machine = nodes_[member].machine;
  const auto before = machine.next_deadline();
  for (const auto& action : machine.on(std::move(event), world_.scheduler.now())) {
    perform(member, action);
  }
  const auto due = machine.next_deadline();
  if (!due || due == before) return;
  world_.scheduler.schedule(*due, [this, member] { on(member, gossip::fallback::Tick{}); });
}

void SimulatedFallback::perform(std::size_t member, const gossip::fallback::Action& action) {
  Node& node = nodes_[member];
  if (const auto* wanted = std::get_if<Begin>(&action)) {
    begin(node, *wanted);
  } else if (std::holds_alternative<Pause>(action)) {
    on(member, Paused{pause(node)});
  } else if (const auto* merge = std::get_if<Merge>(&action)) {
    node.merging = std::make_shared<client::GivenModel>(
        merge->trained.model,
        client::TrainingReport{
            .weight = node.rows, .train_loss = merge->trained.loss, .steps = merge->trained.steps});
  }  // the others: a thousand clients' diaries interest nobody
}

void SimulatedFallback::begin(Node& node, const Begin& begin) {
  const SharedBytes& model = begin.from.model;
  const auto* floats = reinterpret_cast<const float*>(model.view().data());
  node.algorithm = gossip::make_algorithm<float>(
      plan_, node.place, std::span<const float>(floats, model.size() / sizeof(float)));
  if (node.data.optimizer) node.data.optimizer->reset();
  node.pace = begin.pace;
  node.gained = {};
  node.loss_sum = 0;
  if (!exchanging_) begin_exchange();
}

// The local phase at work is left out: an exchange happens at its end, at once.
std::optional<Trained> SimulatedFallback::pause(Node& node) {
  const auto algorithm = std::move(node.algorithm);
  node.takes_part = false;
  if (!algorithm || node.gained.exchanges == 0) return std::nullopt;
  Trained gained = std::exchange(node.gained, {});
  gained.model = SharedBytes::own(to_bytes(as_bytes(algorithm->model())));
  gained.loss = node.loss_sum / static_cast<double>(gained.steps);
  return gained;
}

// --- the gossip ---------------------------------------------------------------------------------

// When the pace of its run allows a node the local phase that comes.
std::optional<TimePoint> SimulatedFallback::due(const Node& node) const {
  if (!node.algorithm) return std::nullopt;
  return node.pace.due(node.gained.steps + static_cast<std::uint64_t>(training_.local_steps));
}

// With the node that may train first, and all who may within the time that it has for one phase.
void SimulatedFallback::begin_exchange() {
  const Node* first = nullptr;
  for (const Node& node : nodes_) {
    if (due(node) && (first == nullptr || *due(node) < *due(*first))) first = &node;
  }
  exchanging_ = first != nullptr;
  if (!exchanging_) return;
  const double phase = to_seconds(first->pace.per_round) * training_.local_steps /
                       static_cast<double>(first->pace.steps);
  const TimePoint last = std::max(*due(*first), world_.scheduler.now()) + from_seconds(phase);
  TimePoint at = world_.scheduler.now();
  std::vector<std::size_t> members;
  for (const std::size_t member : member_at_) {
    Node& node = nodes_[member];
    const auto allowed = due(node);
    node.takes_part = allowed && *allowed <= last;
    if (!node.takes_part) continue;
    members.push_back(member);
    at = std::max(at, *allowed);
  }
  matrix_ = topology_->at(exchanges_);
  const TimePoint sent = world_.scheduler.now() + from_seconds(exchange_seconds(members));
  world_.scheduler.schedule(std::max(at, sent), [this] { exchange(); });
}

double SimulatedFallback::exchange_seconds(const std::vector<std::size_t>& taking_part) const {
  const std::uint64_t bytes = model_->layout()->size() * sizeof(float);
  const sim::Network& network = world_.world.network();
  const double now = to_seconds(world_.scheduler.now() - TimePoint{});
  double slowest = kExchangeSecondsMin;
  for (const std::size_t member : taking_part) {
    const Node& node = nodes_[member];
    const auto id = static_cast<std::uint32_t>(member);
    double seconds = 0;
    for (int k = 0; k < training_.local_steps; ++k) {
      seconds +=
          world_.world.population().step_seconds(id, node.steps + static_cast<std::uint64_t>(k));
    }
    double farthest = 0;
    const auto receivers = matrix_->receivers(node.place);
    for (const topologies::Weight& receiver : receivers) {
      const auto to = static_cast<std::uint32_t>(member_at_[receiver.node]);
      farthest = std::max(farthest, network.latency(id, to, now));
    }
    seconds += static_cast<double>(receivers.size()) * network.transfer_seconds(id, bytes);
    slowest = std::max(slowest, seconds + farthest);
  }
  return slowest;
}

void SimulatedFallback::exchange() {
  std::vector<std::size_t> members;
  for (const std::size_t member : member_at_) {
    if (nodes_[member].takes_part) members.push_back(member);
  }
  train(members);
  mix(members);
  ++exchanges_;
  begin_exchange();
}

gossip::Links SimulatedFallback::links(const Node& node) const {
  return {node.place, matrix_->self(node.place), matrix_->senders(node.place),
          matrix_->receivers(node.place)};
}

void SimulatedFallback::train(const std::vector<std::size_t>& members) {
  std::vector<double> losses(members.size());
  world_.pool.for_each(members.size(), [&](std::size_t i, unsigned worker) {
    Node& node = nodes_[members[i]];
    const Round round = node.pace.round_at(node.gained.steps);
    const gossip::LocalPhase phase{
        .step = exchanges_ * static_cast<std::uint64_t>(training_.local_steps),
        .steps = training_.local_steps,
        .rate = train::learning_rate_at(training_, round, node.pace.rounds),
        .exchange = exchanges_};
    gossip::NodeTraining training(node.data, steppers_[worker]);
    losses[i] = *node.algorithm->adapt(training, phase, links(node));  // built in: none fails
  });
  for (std::size_t i = 0; i < members.size(); ++i) {
    Node& node = nodes_[members[i]];
    node.loss_sum += losses[i];
    node.steps += static_cast<std::uint64_t>(training_.local_steps);
    node.gained.steps += static_cast<std::uint64_t>(training_.local_steps);
    ++node.gained.exchanges;
    if (!std::isfinite(losses[i])) {
      world_.fail(rejected("diverged",
                           "the loss of the gossip in the coordinator's absence is not "
                           "finite: lower train.learning-rate or set train.clip-norm"));
    }
  }
}

// Whoever does not take part, or is in another part of a split network, is not heard.
void SimulatedFallback::mix(const std::vector<std::size_t>& members) {
  const double now = to_seconds(world_.scheduler.now() - TimePoint{});
  std::vector<std::vector<gossip::Received<float>>> inboxes(members.size());
  std::vector<gossip::Message<float>> messages(nodes_.size());
  for (const std::size_t member : members) messages[member] = nodes_[member].algorithm->message(0);
  world_.pool.for_each(members.size(), [&](std::size_t i, unsigned) {
    Node& node = nodes_[members[i]];
    for (const topologies::Weight& sender : matrix_->senders(node.place)) {
      const std::size_t from = member_at_[sender.node];
      const bool heard =
          nodes_[from].takes_part &&
          !world_.world.network().separated_until(static_cast<std::uint32_t>(from),
                                                  static_cast<std::uint32_t>(members[i]), now);
      inboxes[i].push_back({sender.node, sender.weight, heard ? &messages[from] : nullptr});
    }
    node.algorithm->absorb(links(node), inboxes[i], {0, model_->layout()->size()});
  });
  for (std::size_t i = 0; i < members.size(); ++i) {
    Node& node = nodes_[members[i]];
    node.algorithm->conclude(links(node), inboxes[i]);
  }
}

}  // namespace starling::coordinator

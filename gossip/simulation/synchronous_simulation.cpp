// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/synchronous_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "gossip/collective/drawn_groups.h"
#include "gossip/collective/reduced_mean.h"
#include "gossip/simulation/mean_model.h"
#include "gossip/simulation/parallel.h"

namespace starling::gossip {
namespace {

// Columns of all nodes that one job mixes: what is read and written together should stay in the
// last-level cache, for each of the neighbours reads it again.
constexpr std::size_t kTileBytes = std::size_t{8} << 20;
constexpr std::size_t kTileColumnsMin = 256;
// Less than this is mixed before another thread has woken.
constexpr std::size_t kTileElementsMin = std::size_t{1} << 16;

// Nodes a job: of local training, which takes long, and of what takes a moment.
constexpr std::size_t kTrainingPart = 4;
constexpr std::size_t kMomentPart = 512;

// Steps in a row that nobody has done.
constexpr std::uint64_t kInVain = 1000;

std::size_t tile_columns(std::size_t nodes, std::size_t size, unsigned threads) {
  const std::size_t fitting = kTileBytes / (2 * sizeof(float) * nodes);
  const std::size_t least = std::max(kTileColumnsMin, kTileElementsMin / nodes);
  const std::size_t shared = (size + threads - 1) / threads;
  const std::size_t columns = std::max(least, std::min(fitting, shared));
  return (columns + 63) / 64 * 64;
}

}  // namespace

SynchronousSimulation::SynchronousSimulation(const Experiment& experiment, ComputePool& pool)
    : experiment_(experiment),
      pool_(pool),
      trainings_(experiment.trainings(pool.threads())),
      clock_(experiment.network, experiment.population, experiment.nodes(), experiment.lossy()),
      attack_(experiment),
      late_(experiment.nodes()),
      losses_(experiment.nodes(), Result<double>(0.0)),
      bytes_(experiment.nodes()),
      inbox_begin_(experiment.nodes() + std::size_t{1}) {
  algorithms_.reserve(experiment.nodes());
  for (Node node = 0; node < experiment.nodes(); ++node) {
    const std::vector<float> initial = experiment.initial_of(node);
    algorithms_.push_back(make_algorithm<float>(experiment.plan, node, initial));
  }
}

Links SynchronousSimulation::links(const topologies::MixingMatrix* matrix, Node node) const {
  if (matrix == nullptr) return {.node = node};
  return {node, matrix->self(node), matrix->senders(node), matrix->receivers(node), absent_};
}

template <class Body>
void SynchronousSimulation::for_each_present(std::size_t part, const Body& body) {
  for_each_in(pool_, experiment_.nodes(), part, [&](std::size_t index, unsigned thread) {
    const auto node = static_cast<Node>(index);
    if (clock_.present(node)) body(node, thread);
  });
}

Result<void> SynchronousSimulation::advance(std::uint64_t step, double until) {
  while (totals_.step < step && totals_.virtual_seconds < until) {
    const auto period =
        static_cast<std::uint64_t>(experiment_.options.train.period_at(totals_.step));
    const std::uint64_t left = experiment_.options.run.steps - totals_.step;
    STARLING_TRY(exchange(static_cast<int>(std::min(period, left))));
  }
  return {};
}

Result<void> SynchronousSimulation::exchange(int steps) {
  if (!clock_.begin(totals_.step, steps)) {
    return all_left(fmt::format("step {}", totals_.step));
  }
  if (clock_.present_count() == 0) {
    // A step that nobody has done is none; only time has passed.
    totals_.virtual_seconds = std::max(totals_.virtual_seconds, clock_.now());
    if (++in_vain_ == kInVain) return no_progress(totals_.step);
    return {};
  }
  in_vain_ = 0;
  absent_.clear();
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    if (!clock_.present(node)) absent_.push_back(node);
  }
  const auto matrix = experiment_.topology ? experiment_.topology->at(exchanges_) : nullptr;
  if (experiment_.plan.group > 0) draw_groups();
  welcome_returning(matrix.get());
  STARLING_TRY(adapt(matrix.get(), steps));
  if (matrix) {
    mix_neighbours(*matrix);
  } else if (!groups_.empty()) {
    mix_groups();
  } else {
    mix_mean();
  }
  ++exchanges_;
  totals_.step += static_cast<std::uint64_t>(steps);
  totals_.node_steps += clock_.present_count() * static_cast<std::uint64_t>(steps);
  totals_.virtual_seconds = std::max(totals_.virtual_seconds, clock_.now());
  totals_.traffic = clock_.traffic();
  return {};
}

void SynchronousSimulation::draw_groups() {
  const collective::GroupDraw draw{.seed = experiment_.plan.seed,
                                   .members = experiment_.nodes(),
                                   .size = experiment_.plan.group};
  groups_ = draw.at(exchanges_);
  group_of_.resize(experiment_.nodes());
  for (std::size_t k = 0; k < groups_.size(); ++k) {
    for (const Node node : groups_[k]) group_of_[node] = k;
  }
}

// Takes the model of its first neighbour (or of the first of its group) that was there all the
// time, else of the first such node.
void SynchronousSimulation::welcome_returning(const topologies::MixingMatrix* matrix) {
  const auto settled = [this](Node node) { return clock_.present(node) && !clock_.returns(node); };
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    if (!clock_.returns(node)) continue;
    trainings_->forget_momentum(node);
    std::optional<Node> donor;
    if (matrix != nullptr) {
      for (const topologies::Weight& sender : matrix->senders(node)) {
        if (!donor && settled(sender.node)) donor = sender.node;
      }
    }
    if (!groups_.empty()) {
      for (const Node other : groups_[group_of_[node]]) {
        if (!donor && settled(other)) donor = other;
      }
    }
    for (Node other = 0; other < experiment_.nodes() && !donor; ++other) {
      if (settled(other)) donor = other;
    }
    if (!donor) continue;
    algorithms_[node]->restart(algorithms_[*donor]->model());
    clock_.catch_up(node, *donor, 4 * experiment_.parameters());
  }
}

Result<void> SynchronousSimulation::adapt(const topologies::MixingMatrix* matrix, int steps) {
  const NetOptions& options = experiment_.options;
  const LocalPhase phase{
      .step = totals_.step,
      .steps = steps,
      .rate = train::learning_rate_at(options.train.train, static_cast<Round>(totals_.step + 1),
                                      static_cast<Round>(options.run.steps)),
      .exchange = exchanges_};
  std::atomic<bool> failed = false;
  for_each_present(kTrainingPart, [&](Node node, unsigned thread) {
    if (failed) return;  // the run ends: others need not wait for their trainers
    const auto training = trainings_->begin(node, thread, phase.step);
    losses_[node] = algorithms_[node]->adapt(*training, phase, links(matrix, node));
    if (!losses_[node]) failed = true;
  });
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    if (!clock_.present(node)) continue;
    if (!losses_[node]) return losses_[node].error();
    totals_.loss_sum += *losses_[node];
    if (std::isfinite(*losses_[node])) continue;
    return rejected(
        "diverged",
        fmt::format("the loss of node {} is not finite in step {}: {}", node, totals_.step + 1,
                    attack_.is_on() ? "the models of [attack] can do that; lower "
                                      "attack.scale or set another robust.rule"
                                    : "lower train.learning-rate or set "
                                      "train.clip-norm"));
  }
  return {};
}

template <class Inbox>
void SynchronousSimulation::absorb(const topologies::MixingMatrix* matrix, const Inbox& inbox) {
  if (experiment_.plan.traits.whole_columns) {
    const Columns all{0, experiment_.parameters()};
    for_each_present(kTrainingPart, [&](Node node, unsigned) {
      algorithms_[node]->absorb(links(matrix, node), inbox(node), all);
    });
  } else {
    const std::size_t size = experiment_.parameters();
    const std::size_t width = tile_columns(experiment_.nodes(), size, pool_.threads());
    for_each_in(pool_, (size + width - 1) / width, 1, [&](std::size_t tile, unsigned) {
      const Columns columns{tile * width, std::min(size, (tile + 1) * width)};
      for (Node node = 0; node < experiment_.nodes(); ++node) {
        if (!clock_.present(node)) continue;
        algorithms_[node]->absorb(links(matrix, node), inbox(node), columns);
      }
    });
  }
  for_each_present(kMomentPart, [&](Node node, unsigned) {
    algorithms_[node]->conclude(links(matrix, node), inbox(node));
  });
}

void SynchronousSimulation::mix_neighbours(const topologies::MixingMatrix& matrix) {
  const AlgorithmTraits& traits = experiment_.plan.traits;
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    const bool sends = clock_.present(node) && !matrix.receivers(node).empty();
    bytes_[node] = sends ? algorithms_[node]->message(0).bytes() : 0;
    inbox_begin_[node + 1] = inbox_begin_[node] + matrix.senders(node).size();
  }
  forge();
  clock_.exchange(matrix, bytes_, {exchanges_, traits.sends_before_training}, pool_);
  inboxes_.resize(matrix.messages());
  for_each_present(kMomentPart, [&](Node node, unsigned) {
    for (const StepClock::Late& late : clock_.late(node)) {
      if (late.exchange != exchanges_) continue;
      late_[node].emplace_back(late.from, late.exchange, message(matrix, late.from, node));
    }
    std::uint64_t entry = inbox_begin_[node];
    for (const topologies::Weight& sender : matrix.senders(node)) {
      inboxes_[entry] = {sender.node, sender.weight, heard(matrix, node, sender.node, entry)};
      ++entry;
    }
  });
  absorb(&matrix, [&](Node node) {
    return std::span<const Received<float>>(inboxes_).subspan(
        inbox_begin_[node], inbox_begin_[node + 1] - inbox_begin_[node]);
  });
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    std::erase_if(late_[node], [&](const LateMessage& kept) {
      return std::ranges::none_of(clock_.late(node), [&](const StepClock::Late& late) {
        return late.from == kept.from && late.exchange == kept.exchange;
      });
    });
  }
}

// What liars send follows from what the honest send.
void SynchronousSimulation::forge() {
  if (!attack_.is_on()) return;
  std::vector<std::span<const float>> honest;
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    if (present(node)) honest.push_back(algorithms_[node]->message(0).first);
  }
  attack_.forge(honest, pool_);
}

const Message<float>& SynchronousSimulation::message(const topologies::MixingMatrix& matrix,
                                                     Node from, Node to) const {
  if (attack_.is_liar(from)) return attack_.message();
  std::size_t place = 0;
  if (experiment_.plan.traits.per_receiver) {
    const auto receivers = matrix.receivers(from);
    const auto found = std::ranges::lower_bound(receivers, to, {}, &topologies::Weight::node);
    place = static_cast<std::size_t>(found - receivers.begin());
  }
  return algorithms_[from]->message(place);
}

// What `node` mixes of `from` now; null: nothing.
const Message<float>* SynchronousSimulation::heard(const topologies::MixingMatrix& matrix,
                                                   Node node, Node from,
                                                   std::uint64_t entry) const {
  const std::uint64_t exchange = clock_.heard(entry);
  if (exchange == StepClock::kNothing) return nullptr;
  if (exchange == exchanges_) return &message(matrix, from, node);
  const auto kept = std::ranges::find_if(late_[node], [&](const LateMessage& late) {
    return late.from == from && late.exchange == exchange;
  });
  STARLING_CHECK(kept != late_[node].end());
  return &kept->view;
}

SynchronousSimulation::LateMessage::LateMessage(Node sender, std::uint64_t number,
                                                const Message<float>& message)
    : from(sender),
      exchange(number),
      first(message.first.begin(), message.first.end()),
      second(message.second.begin(), message.second.end()),
      packed(message.packed.begin(), message.packed.end()),
      view{.first = first,
           .second = second,
           .packed = packed,
           .scalar = message.scalar,
           .has_scalar = message.has_scalar} {}

void SynchronousSimulation::mix_mean() {
  std::vector<std::span<const float>> first;
  std::vector<std::span<const float>> second;
  std::uint64_t bytes = 0;
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    if (!clock_.present(node)) continue;
    const Message<float>& message = algorithms_[node]->message(0);
    first.push_back(message.first);
    if (!message.second.empty()) second.push_back(message.second);
    bytes = message.bytes();
  }
  std::vector<Node> everybody(experiment_.nodes());
  std::iota(everybody.begin(), everybody.end(), Node{0});
  clock_.all_reduce(everybody, bytes, exchanges_);
  if (first.empty()) return;
  Message<float> mean;
  mean_first_.resize(experiment_.parameters());
  mean_of(first, mean_first_, pool_);
  mean.first = mean_first_;
  if (!second.empty()) {
    STARLING_CHECK(second.size() == first.size());
    mean_second_.resize(experiment_.parameters());
    mean_of(second, mean_second_, pool_);
    mean.second = mean_second_;
  }
  const Received<float> all{.from = 0, .weight = 1, .message = &mean};
  absorb(nullptr, [&](Node) { return std::span(&all, 1); });
}

// As peers sum, so that their models have these bits.
void SynchronousSimulation::mix_groups() {
  std::vector<std::vector<std::span<const float>>> models(groups_.size());
  group_means_.resize(groups_.size());
  for (std::size_t k = 0; k < groups_.size(); ++k) {
    std::uint64_t bytes = 0;
    for (const Node node : groups_[k]) {
      if (!clock_.present(node)) continue;
      const Message<float>& message = algorithms_[node]->message(0);
      models[k].push_back(message.first);
      bytes = message.bytes();
    }
    clock_.all_reduce(groups_[k], bytes, exchanges_);
  }
  std::vector<Message<float>> means(groups_.size());
  std::vector<Received<float>> received(groups_.size());
  for_each_in(pool_, groups_.size(), 1, [&](std::size_t k, unsigned) {
    if (models[k].empty()) return;
    group_means_[k].resize(experiment_.parameters());
    collective::reduced_mean(models[k], {}, group_means_[k]);
    means[k].first = group_means_[k];
    received[k] = {.from = 0, .weight = 1, .message = &means[k]};
  });
  absorb(nullptr, [&](Node node) { return std::span(&received[group_of_[node]], 1); });
}

bool SynchronousSimulation::archive(Archive& state) {
  totals_.archive(state);
  state(exchanges_);
  state(in_vain_);
  clock_.archive(state);
  attack_.archive(state);
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    archive_late(state, node);
    if (!algorithms_[node]->archive(state)) return false;
  }
  trainings_->archive(state);
  return true;
}

// Of each message that the clock knows to be late, what it says.
void SynchronousSimulation::archive_late(Archive& state, Node node) {
  std::vector<LateMessage>& kept = late_[node];
  const std::size_t count = state.count(kept.size(), sizeof(Node));
  std::vector<LateMessage> read;
  for (std::size_t k = 0; k < count && state.good(); ++k) {
    LateMessage message = state.reading() ? LateMessage(0, 0, {}) : std::move(kept[k]);
    state(message.from);
    state(message.exchange);
    state.vector(message.first);
    state.vector(message.second);
    state.vector(message.packed);
    state(message.view.scalar);
    state(message.view.has_scalar);
    message.view.first = message.first;
    message.view.second = message.second;
    message.view.packed = message.packed;
    for (const auto& part : {message.view.first, message.view.second}) {
      state.expect(part.empty() || part.size() == experiment_.parameters());
    }
    read.push_back(std::move(message));
  }
  kept = std::move(read);
  const auto late = clock_.late(node);
  state.expect(kept.size() == late.size() &&
               std::ranges::all_of(late, [&](const StepClock::Late& known) {
                 return std::ranges::any_of(kept, [&](const LateMessage& message) {
                   return message.from == known.from && message.exchange == known.exchange;
                 });
               }));
}

void SynchronousSimulation::trace(Sha256& hash) const {
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    const double ready = clock_.ready(node);
    const auto present = static_cast<std::byte>(clock_.present(node) ? 1 : 0);
    hash.update(std::as_bytes(std::span(&ready, 1)));
    hash.update(std::span(&present, 1));
  }
}

}  // namespace starling::gossip

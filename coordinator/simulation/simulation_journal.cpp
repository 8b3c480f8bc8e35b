// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulation_journal.h"

#include <algorithm>
#include <utility>

#include "coordinator/simulation/journal_values.h"
#include "core/strategy/state_file.h"

namespace starling::coordinator {
namespace {

using namespace journal;

// Of a training, but for what its task says.
struct TrainingFacts {
  std::optional<Error> error;
  double weight = 0;
  std::map<std::string, double> scalars = {};
  std::vector<update::VectorSpec> vectors = {};  // where they are not the plan's
  Bytes state_shape = {};                        // empty: no state
  std::uint64_t state_checksum = 0;

  void archive(Archive& state) {
    visit_optional(state, error);
    if (error) return;
    state(weight);
    visit(state, scalars);
    visit(state, vectors);
    state.vector(state_shape);
    state(state_checksum);
  }
};

Bytes shape_of(const strategy::StateSnapshot& values) {
  Bytes shape;
  if (values == nullptr) return shape;
  append(shape, [&](Archive& state) {
    strategy::State<float> copy = *values;
    visit_shape(state, copy);
  });
  return shape;
}

std::uint64_t checksum_of(const strategy::StateSnapshot& values) {
  Checksum sum;
  for (const SharedBytes& part : strategy::encode_state(values)) sum.update(part.view());
  return sum.value();
}

bool is_hollow(const SharedBytes& bytes) {
  return bytes.size() >= sizeof(float) &&
         std::ranges::all_of(bytes.view().first(sizeof(float)),
                             [](std::byte byte) { return byte == kHollow; });
}

}  // namespace

// --- the clock -----------------------------------------------------------------------------------

TimePoint SimulationJournal::RecordedClock::now() const {
  const auto times = [this](Archive& state) {
    auto told = told_.count();
    auto wall = wall_told_.time_since_epoch().count();
    state(told);
    state(wall);
    told_ = Duration(told);
    wall_told_ = WallTime(std::chrono::milliseconds(wall));
  };
  if (journal_.repeats()) {
    (void)journal_.repeat(Kind::kTime, times);
  } else {
    told_ = clock_.now() - began_;
    wall_told_ = clock_.wall_now();
    journal_.note(Kind::kTime, times);
  }
  return TimePoint(told_);
}

WallTime SimulationJournal::RecordedClock::wall_now() const {
  return journal_.repeats() ? wall_told_ : clock_.wall_now();
}

// When the first process began.
void SimulationJournal::RecordedClock::archive(Archive& state) {
  auto began = wall_began_.time_since_epoch().count();
  state(began);
  if (state.reading()) wall_told_ = wall_began_ = WallTime(std::chrono::milliseconds(began));
}

// --- what stands in a file -----------------------------------------------------------------------

SimulationJournal::SimulationJournal(const Clock& clock,
                                     std::shared_ptr<const model::Layout> layout)
    : layout_(std::move(layout)), clock_(clock, *this) {}

void SimulationJournal::archive(Archive& state) {
  state(mark_.turns);
  state(mark_.messages);
  state(mark_.upload_bytes);
  state(mark_.virtual_nanoseconds);
  clock_.archive(state);
  state.vector(entries_);
  {
    const std::lock_guard lock(mutex_);
    archive_trainings(state);
    archive_states(state);
  }
  state.map(models_, [&](Model& model) { archive_model(state, model); });
  if (!state.reading()) return;
  repeats_ = true;
  for (const auto& [round, model] : models_) {
    if (model.state == nullptr) continue;
    for (const auto& [name, vector] : model.state->vectors) {
      const SharedBytes bytes(model.state, as_bytes(std::span<const float>(vector)));
      inputs_.emplace(sha256(bytes.view()), bytes);
    }
  }
}

void SimulationJournal::archive_trainings(Archive& state) {
  state(has_client_states_);
  std::size_t left = state.count(trainings_.size(), sizeof(TrainingKey));
  if (!state.reading()) {
    for (auto& [key, training] : trainings_) {
      TrainingKey written = key;
      state.bytes(std::as_writable_bytes(std::span(&written, 1)));
      state.vector(training.facts);
    }
  }
  for (; state.reading() && left > 0 && state.good(); --left) {
    TrainingKey key;
    state.bytes(std::as_writable_bytes(std::span(&key, 1)));
    state.vector(trainings_[key].facts);
  }
}

// One at a time, each once.
void SimulationJournal::archive_states(Archive& state) {
  if (!has_client_states_) return;
  bool more = true;
  if (state.reading()) {
    for (state(more); more && state.good(); state(more)) {
      strategy::StateSnapshot values;
      visit(state, values);
      state.expect(values != nullptr);
      if (values != nullptr) states_.emplace(checksum_of(values), std::move(values));
    }
    return;
  }
  std::set<std::uint64_t> written;
  const auto write = [&](strategy::StateSnapshot values) {
    if (values == nullptr || !written.insert(checksum_of(values)).second) return;
    state(more);
    visit(state, values);
  };
  for (const auto& [key, training] : trainings_) write(training.state.lock());
  for_each_held_state(write);
  more = false;
  state(more);
}

void SimulationJournal::archive_model(Archive& state, Model& model) {
  visit(state, model.sha256);
  model::Parameters values = state.reading() ? model::Parameters(layout_) : *model.model;
  state.elements(values.values());
  if (state.reading()) model.model = std::make_shared<const model::Parameters>(std::move(values));
  visit(state, model.state);
}

// --- rounds --------------------------------------------------------------------------------------

template <class Visit>
void SimulationJournal::note(Kind kind, Visit visit) {
  append(entries_, [&](Archive& state) {
    state(kind);
    visit(state);
  });
}

template <class Visit>
bool SimulationJournal::repeat(Kind kind, Visit visit) {
  Kind said = kind;
  const bool good = !differs_ && read_at(entries_, next_, [&](Archive& state) {
    state(said);
    state.expect(said == kind);
    if (state.good()) visit(state);
  });
  differs_ = !good;
  return good;
}

template <class T, class Visit>
Result<T> SimulationJournal::repeated_or(Kind kind, const Compute<T>& compute, Visit visit) {
  std::optional<Error> error;
  if (repeats_) {
    T value{};
    const bool good = repeat(kind, [&](Archive& state) {
      visit_optional(state, error);
      if (!error) visit(state, value);
    });
    if (!good) error = internal("repetition-differs", "the simulation cannot be repeated");
    if (error) return *error;
    return value;
  }
  Result<T> result = compute();
  if (!result) error = result.error();
  note(kind, [&](Archive& state) {
    visit_optional(state, error);
    if (!error) visit(state, *result);
  });
  return result;
}

Result<double> SimulationJournal::add(const Compute<double>& compute) {
  ++summed_;
  return repeated_or<double>(Kind::kAdd, compute,
                             [](Archive& state, double& norm) { state(norm); });
}

Result<RoundOutcome> SimulationJournal::finish(const Compute<RoundOutcome>& compute) {
  summed_ = 0;
  auto outcome = repeated_or<RoundOutcome>(
      Kind::kFinish, compute,
      [this](Archive& state, RoundOutcome& value) { archive_outcome(state, value); });
  if (outcome && outcome->next && !repeats_) {
    const RunPosition& next = *outcome->next;
    models_[next.version.round] = {next.version.sha256, next.model, next.state};
  }
  return outcome;
}

Result<store::ModelRecord> SimulationJournal::write(const Compute<store::ModelRecord>& compute) {
  auto record = repeated_or<store::ModelRecord>(
      Kind::kWrite, compute,
      [](Archive& state, store::ModelRecord& value) { visit(state, value); });
  if (record && repeats_) on_repeated_write(*record);
  return record;
}

void SimulationJournal::archive_outcome(Archive& state, RoundOutcome& outcome) {
  bool has_next = outcome.next.has_value();
  state(has_next);
  if (state.reading() && has_next) outcome.next.emplace();
  if (has_next) archive_position(state, *outcome.next);
  state(outcome.train_loss);
  visit(state, outcome.train_metrics);
  visit_optional(state, outcome.measured);
  visit_optional(state, outcome.not_evaluated);
}

void SimulationJournal::archive_position(Archive& state, RunPosition& position) {
  visit(state, position.version);
  Bytes shape = shape_of(position.state);
  state.vector(shape);
  position.inputs.resize(state.count(position.inputs.size(), Sha256Digest::kBytes));
  for (RoundInput& input : position.inputs) visit(state, input.what);
  if (!state.reading() || !state.good()) return;
  const std::lock_guard lock(mutex_);  // of the states
  // By content: rounds may end with what others began with, and clients hold inputs by content.
  const auto same = std::ranges::find_if(
      models_, [&](const auto& m) { return m.second.sha256 == position.version.sha256; });
  position.model = same != models_.end() ? same->second.model : hollow_model();
  const auto kept = models_.find(position.version.round);
  position.state = kept != models_.end() ? kept->second.state : state_of(shape, 0);
  for (RoundInput& input : position.inputs) {
    if (const auto real = inputs_.find(input.what.sha256); real != inputs_.end()) {
      input.bytes = real->second;
      continue;
    }
    const bool has = position.state != nullptr && position.state->vectors.contains(input.what.name);
    state.expect(has);
    if (!has) return;
    const auto& vector = position.state->vectors.at(input.what.name);
    input.bytes = SharedBytes(position.state, as_bytes(std::span<const float>(vector)));
  }
}

const model::Snapshot& SimulationJournal::hollow_model() {
  if (hollow_model_ == nullptr) {
    auto values = model::Parameters(layout_);
    std::ranges::fill(std::as_writable_bytes(values.values()), kHollow);
    hollow_model_ = std::make_shared<const model::Parameters>(std::move(values));
  }
  return hollow_model_;
}

void SimulationJournal::forget_models_but(const std::set<Round>& rounds) {
  if (models_.empty()) return;
  const Round last = models_.rbegin()->first;
  std::erase_if(models_, [&](const auto& model) {
    return model.first + 1 < last && !rounds.contains(model.first);
  });
}

bool SimulationJournal::end_repetition(const Mark& here) {
  const bool whole = !differs_ && here == mark_ && next_ == entries_.size();
  const std::lock_guard lock(mutex_);
  repeats_ = false;
  states_.clear();
  inputs_.clear();
  hollow_states_.clear();
  clock_.go_on();
  return whole;
}

// --- trainings -----------------------------------------------------------------------------------

Result<client::PendingUpdate> SimulationJournal::train(
    const TrainingKey& key, const client::Train& task,
    const std::function<Result<client::PendingUpdate>()>& compute) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = trainings_.find(key);
    if (repeats_ && found != trainings_.end()) return repeated(found->second, task);
  }
  // One that its client has given up before the journal was saved. Nothing becomes of it.
  if (is_hollow(task.base)) {
    return internal("repetition-differs", "the model of this training was not kept");
  }
  Result<client::PendingUpdate> update = compute();
  if (!update && update.error().code() == "stopped") return update;
  TrainingFacts facts;
  Training training;
  if (!update) {
    facts.error = update.error();
  } else {
    facts.weight = update->head.weight;
    facts.scalars = update->head.scalars;
    if (update->head.vectors != task.plan.schema.vectors) facts.vectors = update->head.vectors;
    if (update->state != nullptr) {
      facts.state_shape = shape_of(update->state);
      facts.state_checksum = checksum_of(update->state);
      training.state = update->state;
    }
  }
  append(training.facts, [&](Archive& state) { facts.archive(state); });
  const std::lock_guard lock(mutex_);
  has_client_states_ = has_client_states_ || !facts.state_shape.empty();
  trainings_.insert_or_assign(key, std::move(training));
  return update;
}

Result<client::PendingUpdate> SimulationJournal::repeated(Training& training,
                                                          const client::Train& task) {
  TrainingFacts facts;
  std::size_t at = 0;
  if (!read_at(training.facts, at, [&](Archive& state) { facts.archive(state); })) {
    return internal("repetition-differs", "a training in the journal cannot be read");
  }
  if (facts.error) return *facts.error;
  client::PendingUpdate update{
      .head = {.task = task.plan.task,
               .base = task.plan.base,
               .weight = facts.weight,
               .vectors = facts.vectors.empty() ? task.plan.schema.vectors : facts.vectors,
               .scalars = std::move(facts.scalars)},
      .payload = {}};
  const bool trains = task.plan.kind == protocol::TaskKind::kTrain;
  const std::uint64_t bytes = trains ? update::payload_bytes(update.head.vectors) : 0;
  const Hollow& hollow = hollow_of(bytes);
  update.payload = hollow.bytes;
  update.head.payload_bytes = bytes;
  update.head.payload_checksum = hollow.checksum;
  if (!facts.state_shape.empty()) {
    update.state = state_of(facts.state_shape, facts.state_checksum);
    training.state = update.state;
  }
  return update;
}

const SimulationJournal::Hollow& SimulationJournal::hollow_of(std::uint64_t bytes) {
  const auto [found, is_new] = hollow_.try_emplace(bytes);
  if (is_new) {
    found->second.bytes = SharedBytes::own(Bytes(static_cast<std::size_t>(bytes), kHollow));
    found->second.checksum = checksum(found->second.bytes.view());
  }
  return found->second;
}

// The one that is kept, or else one of its shape.
strategy::StateSnapshot SimulationJournal::state_of(const Bytes& shape, std::uint64_t checksum) {
  if (shape.empty()) return nullptr;
  if (const auto kept = states_.find(checksum); kept != states_.end()) return kept->second;
  strategy::StateSnapshot& hollow = hollow_states_[starling::checksum(shape)];
  if (hollow != nullptr) return hollow;
  strategy::State<float> values;
  std::size_t at = 0;
  if (read_at(shape, at, [&](Archive& state) { visit_shape(state, values); })) {
    hollow = std::make_shared<const strategy::State<float>>(std::move(values));
  }
  return hollow;
}

}  // namespace starling::coordinator

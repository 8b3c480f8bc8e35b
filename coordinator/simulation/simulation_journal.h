// SPDX-License-Identifier: Apache-2.0
// What a simulation has computed, so that another process can go on with it. A simulation is a pure
// function of its settings and of what is computed in it; nearly all its time goes into the latter.
// So a stopped one is repeated from its beginning, message by message, but what was trained, summed
// and evaluated is taken from here. At the turn where the journal was saved, the end of a round, it
// is where the first process was, to the bit, and computes again.
//
// Of each training the journal keeps what decisions depend on (weight, scalars, sizes, errors), of
// each round its outcome. Values are kept only where something may still read them: the models of
// the last two rounds and of those that clients are still at work on, with the strategy's state,
// and the states that clients hold. All others stand in the repetition as bytes of 0xff, which are
// not a number: if one were ever read, validation would refuse it. After a commit no update of an
// earlier phase is read any more.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "coordinator/rounds/round_results.h"
#include "core/base/archive.h"
#include "core/base/clock.h"
#include "core/client/client_machine.h"

namespace starling::coordinator {

class SimulationJournal final : public RoundResults {
 public:
  // Where a simulation is between two turns.
  struct Mark {
    std::uint64_t turns = 0;
    std::uint64_t messages = 0;
    std::uint64_t upload_bytes = 0;
    std::int64_t virtual_nanoseconds = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  // Of a training: the client, how often its process has begun, the task.
  struct TrainingKey {
    std::uint64_t client = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t task = 0;
    friend auto operator<=>(const TrainingKey&, const TrainingKey&) = default;
  };

  // Of a run whose model has this layout. The clock must outlive the journal.
  SimulationJournal(const Clock& clock, std::shared_ptr<const model::Layout> layout);

  // Reads or writes it. What was read is repeated from its beginning.
  void archive(Archive& state);

  // The simulation's clock: in a repetition the times of the first process.
  const Clock& clock() const { return clock_; }

  bool repeats() const { return repeats_; }
  // A repetition has asked for something else than the first process did.
  bool differs() const { return differs_; }
  const Mark& mark() const { return mark_; }
  // Whether all of the journal was repeated and `here` is its mark; it goes on from here.
  bool end_repetition(const Mark& here);

  // The rounds of what is saved next. Called between two turns.
  void set_mark(const Mark& mark) { mark_ = mark; }
  // Whether it may be saved: not while a phase has summed something.
  bool is_quiet() const { return summed_ == 0; }
  // Calls `visit` with each state that a client has on its disk. Asked when the journal is saved,
  // where clients have any.
  using VisitState = std::function<void(const strategy::StateSnapshot&)>;
  std::function<void(const VisitState& visit)> for_each_held_state = [](const VisitState&) {};
  // Models that nothing reads any more: of all rounds but these and the last two.
  void forget_models_but(const std::set<Round>& rounds);
  std::size_t models() const { return models_.size(); }
  Round last_round() const { return models_.empty() ? 0 : models_.rbegin()->first; }

  // On any thread. "stopped" as `compute`; "repetition-differs" of a training that begins with what
  // was not kept.
  [[nodiscard]] Result<client::PendingUpdate> train(
      const TrainingKey& key, const client::Train& task,
      const std::function<Result<client::PendingUpdate>()>& compute);

  Result<double> add(const Compute<double>& compute) override;
  Result<RoundOutcome> finish(const Compute<RoundOutcome>& compute) override;
  Result<store::ModelRecord> write(const Compute<store::ModelRecord>& compute) override;
  // Of the model's files, in a repetition: they are there already.
  std::function<void(const store::ModelRecord&)> on_repeated_write = [](const auto&) {};

 private:
  struct Training {
    Bytes facts;
    // Of the client from its commit on. It may be on its way to the client's disk.
    std::weak_ptr<const strategy::State<float>> state = {};
  };
  struct Model {
    Sha256Digest sha256;
    model::Snapshot model;
    strategy::StateSnapshot state;  // of the strategy
  };
  class RecordedClock final : public Clock {
   public:
    RecordedClock(const Clock& clock, SimulationJournal& journal)
        : clock_(clock),
          journal_(journal),
          began_(clock.now()),
          wall_began_(clock.wall_now()),
          wall_told_(wall_began_) {}
    TimePoint now() const override;
    WallTime wall_now() const override;
    // Time passes again, from the last one that was told.
    void go_on() { began_ = clock_.now() - told_; }
    void archive(Archive& state);

   private:
    const Clock& clock_;
    SimulationJournal& journal_;
    TimePoint began_;  // the first process, by this one's clock
    WallTime wall_began_;
    mutable Duration told_{};  // last, since then
    mutable WallTime wall_told_;
  };
  struct Hollow {
    SharedBytes bytes;
    std::uint64_t checksum = 0;
  };
  enum class Kind : std::uint8_t { kAdd = 1, kFinish, kWrite, kTime };

  template <class Visit>
  void note(Kind kind, Visit visit);
  template <class Visit>
  bool repeat(Kind kind, Visit visit);
  template <class T, class Visit>
  Result<T> repeated_or(Kind kind, const Compute<T>& compute, Visit visit);

  Result<client::PendingUpdate> repeated(Training& training, const client::Train& task);
  void archive_trainings(Archive& state);
  void archive_states(Archive& state);
  void archive_model(Archive& state, Model& model);
  void archive_position(Archive& state, RunPosition& position);
  void archive_outcome(Archive& state, RoundOutcome& outcome);
  const model::Snapshot& hollow_model();
  const Hollow& hollow_of(std::uint64_t bytes);
  strategy::StateSnapshot state_of(const Bytes& shape, std::uint64_t checksum);

  const std::shared_ptr<const model::Layout> layout_;
  RecordedClock clock_;
  std::mutex mutex_;  // of what trainings touch
  std::map<TrainingKey, Training> trainings_;
  bool has_client_states_ = false;
  std::map<std::uint64_t, strategy::StateSnapshot> states_;  // in a repetition, by checksum
  Bytes entries_;         // what the executor and the clock were asked, in order
  std::size_t next_ = 0;  // of them, in a repetition
  std::map<Round, Model> models_;
  std::map<Sha256Digest, SharedBytes> inputs_;  // of the next rounds, in a repetition
  std::uint64_t summed_ = 0;                    // updates, since the last phase ended
  Mark mark_;
  bool repeats_ = false;
  bool differs_ = false;

  std::map<std::uint64_t, Hollow> hollow_;                          // by size
  std::map<std::uint64_t, strategy::StateSnapshot> hollow_states_;  // by the checksum of the shape
  model::Snapshot hollow_model_;
};

}  // namespace starling::coordinator

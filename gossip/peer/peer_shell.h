// SPDX-License-Identifier: Apache-2.0
// A gossip peer, on a device and in a simulation: its machine, and around it the links, the timer,
// the disk and the computations of the world it lives in. Training, mixing and checkpoints are done
// beside its turns.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/computation.h"
#include "core/base/disk.h"
#include "core/base/log.h"
#include "core/identity/identity_directory.h"
#include "gossip/peer/peer_machine.h"
#include "gossip/peer/peer_transport.h"

namespace starling::gossip {

// What a member trains on: its rows, or a trainer that has its own. Neither: no run begins.
struct PeerData {
  data::DatasetView rows;
  client::TrainerHost* trainer = nullptr;
};

class PeerShell {
 public:
  // All references must outlive the shell, and `log`, `disk` and `scheduler` what is submitted to
  // the computations, which may end after it. `disk` is used on turns and by `disk_work` at once.
  struct World {
    Scheduler& scheduler;  // takes post() from other threads, where a trainer trains
    const Clock& clock;
    Log& log;
    const identity::IdentityDirectory& identity;
    Computation& training;   // local phases; one worker
    Computation& mixing;     // all else that is computed; may be the same
    Computation& disk_work;  // one worker, so that files change in order
    Disk& disk;
    std::function<std::unique_ptr<PeerTransport>(PeerTransport::Handlers)> connect;
  };
  struct Options : PeerOptions {
    std::filesystem::path directory;  // holds `roster` and the checkpoint
    bool own_classes = false;         // labels are texts that only this member's file numbers
    const AlgorithmCatalogue* own = nullptr;  // AlgorithmOptions::own; must outlive the shell
  };
  // To the roster's issuer, where there is a link with it; else dropped.
  struct Issuer {
    std::function<void(const protocol::PeerReport&)> report;
    std::function<void(const protocol::VectorTransfer&, SharedBytes)> hand_in;  // a model
  };

  // A trainer must outlive it.
  PeerShell(World world, Options options, PeerData data, Issuer issuer);
  // At any time, as when a process is killed: nothing that was submitted comes back.
  ~PeerShell();
  PeerShell(const PeerShell&) = delete;
  PeerShell& operator=(const PeerShell&) = delete;

  // Takes the roster that an earlier process kept, if it is still good.
  [[nodiscard]] Result<void> start();
  // A verified roster of this federation; ignored where it is not newer than the present one.
  using Source = peer::Source;
  void take_roster(const identity::SignedRoster& roster, Source source);
  // In good order: no training begins any more, what is being computed is waited for, not long,
  // and a checkpoint is kept; then `closed`, in a later turn, though the shell is gone by then.
  // Once, and not from a handler.
  void close(std::function<void()> closed);

  // As PeerMachine::standby.
  std::optional<FallbackTerms> standby() const;
  // Trains on by it, at its pace and from its model. "no-fallback", "wrong-vectors", and as
  // derive_run.
  [[nodiscard]] Result<void> begin_with(const fallback::Begin& begin);
  // As PeerMachine::gossiped.
  std::optional<fallback::Trained> gossiped() const { return machine_.gossiped(); }
  // The same, and ends it.
  std::optional<fallback::Trained> end_fallback();

  bool is_finished() const { return machine_.is_finished(); }
  // Where this process wrote the model with which the run ended here; empty: it has not.
  std::filesystem::path model_file() const;
  protocol::PeerReport report() const;
  const identity::SignedRoster* roster() const { return machine_.roster().whole().get(); }
  PeerTransport& transport() { return *links_; }
  const PeerMachine& machine() const { return machine_; }  // for invariants

 private:
  struct Preparation;  // of a run, that a trainer takes its time for

  void on(peer::Event event);
  void handle(peer::Event&& event);
  void perform(peer::KeepRoster& action);
  void perform(peer::SetRoster& action);
  void perform(peer::KeepLinks& action);
  void perform(peer::LimitMessages& action) { links_->set_messages_max(action.messages_max); }
  void perform(peer::Reach& action) { links_->reach(action.member); }
  void perform(peer::Send& action) { links_->send(action.to, action.message, action.payload); }
  void perform(peer::SendTransfer& action);
  void perform(peer::Prepare& action);
  void perform(peer::CancelPreparation&);
  void perform(peer::Compute& action);
  void perform(peer::KeepCheckpoint& action);
  void perform(peer::Report& action);
  void perform(peer::HandIn& action) { issuer_.hand_in(action.transfer, std::move(action.model)); }
  void perform(peer::Say& action) { world_.log.write(action.level, action.line); }
  void perform(peer::Closed&);

  WallTime wall() const { return world_.clock.wall_now(); }
  std::filesystem::path model_path() const { return options_.directory / "model.safetensors"; }
  void note_model(const std::string& run);
  void add_links(protocol::PeerReport& report) const;
  // Brings the columns of `rows_` into the run's order.
  Result<NetworkRun> derive(const identity::Roster& roster);
  void prepare_with_trainer(const peer::Prepare& wanted);
  void prepared(const peer::Prepare& wanted, Result<NetworkRun> run);
  std::optional<Checkpoint> load_kept(const NetworkRun& run, const std::string& run_id) const;
  std::shared_ptr<LocalSteps> make_local_steps(const NetworkRun& run, Member self,
                                               std::uint64_t step,
                                               std::optional<FallbackPace> pace);
  std::function<void(const std::string&)> trainer_warning();

  World world_;
  Options options_;
  PeerData data_;
  data::DatasetView rows_;  // of the data, their columns in the run's order
  Issuer issuer_;
  PeerMachine machine_;
  std::shared_ptr<Preparation> preparation_;
  std::string model_of_;  // the run of the model that was written last; empty: none was
  std::function<void()> closed_;
  std::deque<peer::Event> events_;  // of handlers that were called while actions are performed
  bool performing_ = false;
  std::shared_ptr<PeerShell*> self_;
  std::unique_ptr<PeerTransport> links_;
  const std::unique_ptr<Timer> timer_;
};

}  // namespace starling::gossip

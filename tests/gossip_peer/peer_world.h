// SPDX-License-Identifier: Apache-2.0
// A network of whole peers in virtual time: the shell that devices run, over simulated links, disks
// that outlive their processes, and clocks of their own. The same seed gives the same run.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/identity/identity_directory.h"
#include "core/sim/simulated_disk.h"
#include "gossip/peer/network_run.h"
#include "gossip/peer/peer_shell.h"
#include "gossip/simulation/experiment.h"
#include "gossip/simulation/peer_network.h"

namespace starling::testing {

class WorldInvariants;

// What every member of such a network derives of its roster.
gossip::NetworkRun run_of(const gossip::Experiment& experiment);

class PeerWorld {
 public:
  // Time of the device: the world's, and so much off.
  class DeviceClock final : public Clock {
   public:
    explicit DeviceClock(const PeerWorld& world) : world_(world) {}
    TimePoint now() const override { return world_.scheduler.now(); }
    WallTime wall_now() const override { return world_.wall_now() + off; }
    std::chrono::milliseconds off{};

   private:
    const PeerWorld& world_;
  };
  // A process of a peer, from its start to its end.
  struct Process {
    std::unique_ptr<Scheduler> turns;
    TimePoint worker_free{};  // the worker computes until then
    std::unique_ptr<Computation> training_on_worker;
    std::unique_ptr<Computation> mixing_on_worker;
    std::unique_ptr<Computation> training;
    std::unique_ptr<Computation> mixing;
    TimePoint disk_free{};
    std::unique_ptr<Computation> disk;
    std::unique_ptr<Computation> disk_work;  // on the disk
    std::unique_ptr<gossip::PeerShell> shell;
    bool closing = false;
    std::optional<TimePoint> frozen_since;       // stopped in mid-turn
    std::vector<std::function<void()>> waiting;  // turns, while it is frozen
  };
  struct Peer {
    Peer(const PeerWorld& world, std::uint32_t place) : disk(place), clock(world) {}
    std::string name;
    const identity::IdentityDirectory* identity = nullptr;
    sim::SimulatedDisk disk;
    DeviceClock clock;
    std::unique_ptr<Process> process;  // null: not running
    bool wanted = false;               // a killed process is started again
    std::uint64_t starts = 0;          // of processes
    std::optional<protocol::PeerReport> last;
    std::vector<std::pair<protocol::WholeModel, std::vector<float>>> models;  // handed in
    int kills = 0;
    std::uint64_t computations = 0;         // local phases and mixings
    std::size_t columns_taken = 0;          // parts of others' models that came
    std::size_t columns_of_minorities = 0;  // of these: they rest on less than its own model
    // How long its computations take, where that is not `phase`: local phases, and all others.
    std::function<Duration()> training_time;
    std::function<Duration()> mixing_time;
    gossip::PeerShell& shell() const { return *process->shell; }
  };

  // As many peers as the options have nodes, node-01, node-02, ... None runs yet.
  PeerWorld(const gossip::NetOptions& options, std::uint64_t seed, bool lossy = true);
  ~PeerWorld();

  void start(std::size_t index);
  void start_all();
  void begin();                  // all start, with the roster of epoch 1
  void kill(std::size_t index);  // at once, nothing is said or kept
  void stop(std::size_t index);  // in good order; returns when it has ended
  // The same within an event, then `closed`, unless the process is killed before. Requires: it
  // runs, and is not closing yet.
  void close(std::size_t index, std::function<void()> closed);
  // As SIGSTOP and SIGCONT: in between nothing of the process runs, and what it would hear waits.
  void freeze(std::size_t index);
  void thaw(std::size_t index);
  bool is_frozen(std::size_t index) const;
  // What is written to this disk may fail from now on, and kill the process.
  void disturb_disk(std::size_t index, sim::SimulatedDisk::FaultInjector injector);
  void lose_disk(std::size_t index);  // Requires: it does not run
  // Nothing passes between these and the others, whose connections look whole at first.
  void cut_off(const std::set<std::size_t>& group);
  void mend(const std::set<std::size_t>& group);
  // Faults are over: disks and clocks are good again, all ways open and fast, and nobody is frozen.
  void calm();
  // A roster of these peers (all, where empty), given to all that run, or by their issuer to one.
  identity::SignedRoster roster(std::uint64_t epoch, std::vector<std::size_t> members = {},
                                Duration lifetime = std::chrono::hours(24),
                                const std::string& run = "run-1") const;
  identity::SignedRoster stopped_roster(std::uint64_t epoch) const;
  // By the issuer, or by a second one, who revokes nothing, and whose key the issuer may
  // revoke.
  enum class Signer { kIssuer, kDeputy };
  identity::SignedRoster sign(const identity::Roster& roster,
                              Signer signer = Signer::kIssuer) const;
  void revoke_deputy();  // by all rosters that are made from now on
  void publish(const identity::SignedRoster& roster);
  void give(std::size_t index, const identity::SignedRoster& roster);

  void at(Duration time, std::function<void()> event);  // since the beginning
  // One event; a process that its disk killed is started again a while later.
  void run_one();
  // Runs until `done` holds, asked after each event. False, and a failure that names the seed and
  // where everyone stands: not within so much virtual time.
  bool run_until(const std::function<bool()>& done, Duration within, const std::string& what);
  void run_for(Duration time);
  // Within an hour.
  void run_to_exchange(std::size_t index, protocol::Exchange exchange);
  void run_to_end();  // until all have finished
  bool all_finished() const;
  std::string status() const;                         // of all
  std::vector<float> model(std::size_t index) const;  // of the last hand-in
  // Requires: there is one.
  const gossip::EpochSession& session(std::size_t index) const;
  const gossip::TrainingProtocol& training(std::size_t index) const {
    return session(index).training();
  }
  gossip::TrainingProgress progress(std::size_t index) const;  // the initial one: no session
  std::vector<std::string> said(std::size_t index) const;      // `lines` of one peer, bare
  int copies_begun(std::size_t index) const;                   // of others' models, by what it said
  WallTime wall_now() const;
  // What holds at any time (world_invariants.h).
  WorldInvariants& invariants() { return *invariants_; }

  sim::VirtualScheduler scheduler;
  gossip::PeerNetwork network;
  Rng rng;
  const std::uint64_t seed;
  gossip::Experiment experiment;
  gossip::PeerShell::Options options;  // of processes that start from now on
  std::function<Duration()> phase;     // how long a computation takes
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<std::string> lines;  // what was logged at info and above
  Duration restart_after = std::chrono::seconds(3);
  // Ways that are slower, one way: by so many times.
  std::map<std::pair<std::string, std::string>, int> slow;
  // Where set: sees the vectors that are about to be sent over a link, and may change them.
  std::function<void(std::size_t from, std::size_t to, protocol::VectorTransfer&,
                     SharedBytes& data)>
      on_transfer;
  // The same of an all-reduce's notes; false: it is not sent.
  std::function<bool(std::size_t from, protocol::ReduceNote&)> on_reduce_note;
  std::set<std::size_t> may_refuse;  // whose run may not go on
  // Where set: may change what a peer says of itself when a link is made, and later.
  std::function<void(std::size_t from, protocol::PeerHello&)> on_greeting;

 private:
  class DelayedComputation;
  class WatchedComputation;
  class WatchedScheduler;
  class PeerLog;

  // Something that the process hears: at once, or when it is not frozen any more.
  void turn(std::size_t index, std::function<void()> work);
  Duration passage(const std::string& from, const std::string& to, std::size_t bytes);

  bool lossy_;
  std::vector<std::unique_ptr<PeerLog>> logs_;
  std::unique_ptr<WorldInvariants> invariants_;
  std::vector<Sha256Digest> revoked_;  // keys
  WallTime began_;
};

}  // namespace starling::testing

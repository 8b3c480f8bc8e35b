// SPDX-License-Identifier: Apache-2.0
// A gossip peer, on a device and in a simulation: around failure detection and the course of a run.
// It follows the roster it is given: begins its run, rebuilds everything where the members change,
// falls silent when the roster expires, and goes on from its checkpoint after a restart. Training
// and files are done beside its turns.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/base/computation.h"
#include "core/base/disk.h"
#include "core/base/log.h"
#include "core/identity/identity_directory.h"
#include "core/issuer/roster_parts.h"
#include "gossip/fallback/fallback_machine.h"
#include "gossip/membership/swim_machine.h"
#include "gossip/peer/checkpoint.h"
#include "gossip/peer/course.h"
#include "gossip/peer/make_course.h"
#include "gossip/peer/model_copy.h"
#include "gossip/peer/peer_transport.h"

namespace starling::gossip {

struct NetworkRun;

// What a member trains on: its rows, or a trainer that has its own. Neither: no run begins.
struct PeerData {
  data::DatasetView rows;
  client::TrainerHost* trainer = nullptr;
};

class PeerShell final : private CourseHost {
 public:
  // All references must outlive the shell. What is submitted to `training` and `disk_work` may end
  // after it.
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
  struct Options {
    membership::SwimOptions membership;
    std::string software = "starling-edge";
    std::filesystem::path directory;  // holds `roster` and the checkpoint
    bool listens = false;             // others can dial this peer
    Duration checkpoint_every = std::chrono::seconds(30);
    Duration report_every = std::chrono::seconds(1);
    Duration patience_min = std::chrono::seconds(2);
    Duration patience_max = std::chrono::seconds(60);
    Duration start_patience = std::chrono::seconds(60);
    bool own_classes = false;  // labels are texts that only this member's file numbers
    std::uint64_t seed = 1;  // of what must differ between processes: probes, backoff, incarnation
  };
  // To the roster's issuer, where there is a link with it; else dropped.
  struct Issuer {
    std::function<void(const protocol::PeerReport&)> report;
    std::function<void(const protocol::Parcel&, SharedBytes)> hand_in;  // a model
  };

  // A trainer must outlive it.
  PeerShell(World world, Options options, PeerData data, Issuer issuer);
  // At any time, as when a process is killed: nothing that was submitted comes back.
  ~PeerShell() override;
  PeerShell(const PeerShell&) = delete;
  PeerShell& operator=(const PeerShell&) = delete;

  // Takes the roster that an earlier process kept, if it is still good.
  [[nodiscard]] Result<void> start();
  // A verified roster of this federation; ignored where it is not newer than the present one. What
  // its issuer sends just now is current, whatever this device's clock says; what others pass on is
  // judged by the clock.
  enum class Source { kIssuer, kOther };
  void take_roster(const identity::SignedRoster& roster, Source source);
  // In good order: no training begins any more, what is being computed is waited for, not long,
  // and a checkpoint is kept; then `closed`, in a later turn. Once.
  void close(std::function<void()> closed);

  // A fallback's roster only stands by: its terms, while it is current and names this device.
  std::optional<FallbackTerms> standby() const;
  // Trains on by it, at its pace and from its model. "no-fallback", "wrong-vectors", and as
  // derive_run.
  [[nodiscard]] Result<void> begin_with(const fallback::Begin& begin);
  // What came of it so far, without the local phase at work. None where it ended by itself before
  // it began.
  std::optional<fallback::Trained> gossiped() const;
  // The same, and ends it.
  std::optional<fallback::Trained> end_fallback();

  bool is_finished() const;
  protocol::PeerReport report() const;
  const identity::SignedRoster* roster() const { return roster_.get(); }
  PeerTransport& transport() { return *links_; }

 private:
  struct Session;   // what lasts as long as an epoch
  struct Fallback;  // ... as an absence of the coordinator
  struct Former;
  struct Preparation;  // of a session, that a trainer takes its time for

  // CourseHost
  TimePoint now() const override { return world_.scheduler.now(); }
  void send(Member to, protocol::Parcel parcel, SharedBytes data) override;
  void send(Member to, protocol::ReduceNote note) override;
  void compute(std::function<void()> work, std::function<void()> done) override;
  void train(std::uint64_t step, std::function<void()> work, std::function<void()> done) override;
  void copy_model(std::vector<Member> donors) override;
  void say(LogLevel level, std::string line) override;
  void advanced() override;
  bool is_leaving() const override { return switching_ || closing_; }
  void finished() override;
  void failed(Error error) override;

  void keep_links();
  void adopt();
  bool is_member() const;
  bool is_computing() const;
  void stop_computing();
  void expire();
  std::string expiry() const;
  WallTime judged_now() const;
  [[nodiscard]] Result<void> begin_session(Member self);
  void prepare(Member self);
  std::function<void(const std::string&)> trainer_warning();
  void trainer_failed(const std::string& line);
  void leave_trainer();
  void prepared(const Preparation& preparation, Member self, Result<NetworkRun> run);
  [[nodiscard]] Result<void> begin_session(Member self, NetworkRun run);
  CourseStart course_start(const NetworkRun& run);
  void hand_over();
  Duration start_patience();
  std::set<Member> absent(Member self) const;
  void heard(Member member);
  void load_latest(const NetworkRun& run);
  Checkpoint checkpoint_now(std::span<const float> model) const;
  void end_session();
  void submit(Computation& computation, std::function<void()> work, std::function<void()> done);
  void computed(const std::function<void()>& done, TimePoint began);
  protocol::PeerHello hello() const;
  Traffic traffic() const;
  void on_up(Member member, const protocol::PeerHello& hello);
  void on_down(Member member, const Error& error);
  void on_message(Member from, const protocol::Envelope& envelope);
  void on_parcel(Member from, ParcelFlow::Whole whole);
  Result<void> check(Member from, const protocol::Parcel& parcel);
  void on_swim(const std::vector<membership::Action>& actions);
  void take_roster_part(Member from, const protocol::RosterPart& part, const SharedBytes& piece);
  void answer_asks();
  void continue_copy();
  void record_fallback();
  void look_at_model();
  enum class Kept { kCheckpoint, kModelToo };  // the run is over here: its model is a result
  void keep_checkpoint(Kept kept);
  void write_checkpoint(Kept kept);  // the latest, where it is of this life's run
  void tick();
  void set_alarm();
  void send_report();
  void finish_closing();

  World world_;
  Options options_;
  PeerData data_;
  Issuer issuer_;
  Rng rng_;
  std::shared_ptr<const identity::SignedRoster> roster_;
  TimePoint taken_at_{};         // the roster
  bool clock_is_wrong_ = false;  // it was not current by the clock when its issuer sent it
  bool expired_ = false;         // and its links are cut
  struct Failure {
    protocol::Epoch epoch = 0;
    std::string problem;
  };
  std::optional<Failure> failure_;  // of the latest session: its epoch's run cannot go on here
  // To what the roster says now, when nothing is computed; the links have changed already.
  bool switching_ = false;
  std::string problem_;
  std::shared_ptr<Preparation> preparation_;
  bool trainer_fails_ = false;  // since it did a task
  std::shared_ptr<Session> session_;
  struct Ended {
    std::string run_id;  // Roster::run_identity()
    std::string run_name;
    CourseProgress progress;
    // Its members; nothing: all may come back.
    std::optional<std::map<std::string, bool>> reachable;
  };
  std::optional<Ended> ended_;      // the session before
  std::unique_ptr<Former> former_;  // what of it the next session continues with, if any
  struct Start {
    std::string run_id;
    TimePoint at{};
    Duration computing_max{};  // the longest computation since then
  };
  std::optional<Start> start_;               // of the run, in this process
  std::unique_ptr<Fallback> fallback_;       // null: a fallback's roster only stands by
  std::optional<Checkpoint> latest_;         // kept last, in this process or an earlier one
  std::map<Member, protocol::Swim> unsent_;  // probes that wait for a link
  std::map<Member, issuer::RosterAssembler> assemblers_;
  TimePoint checkpoint_at_{};
  TimePoint report_at_{};
  std::uint64_t arrived_ = 0;  // messages
  std::string arrived_in_;     // the run of the last of them
  Traffic traffic_before_;     // of sessions that have ended
  double reported_loss_ = 0;
  std::uint64_t reported_steps_ = 0;
  bool closing_ = false;
  std::function<void()> closed_;  // until all is kept
  std::shared_ptr<PeerShell*> self_;
  std::unique_ptr<PeerTransport> links_;
  const std::unique_ptr<Timer> timer_;
};

}  // namespace starling::gossip

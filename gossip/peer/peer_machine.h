// SPDX-License-Identifier: Apache-2.0
// What a gossip peer decides, as a deterministic machine: it follows the roster that it is given,
// begins its run, begins anew with what it has learned where the members change, falls silent when
// the roster expires, goes on from its checkpoint, and stands by for the time without a
// coordinator. It owns no socket, clock, thread or file: events come in with the time, actions go
// out for a shell to perform in order. What happens within an epoch is EpochSession's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/identity/identity_directory.h"
#include "core/issuer/roster_parts.h"
#include "gossip/peer/ended_session.h"
#include "gossip/peer/epoch_session.h"
#include "gossip/peer/fallback_run.h"
#include "gossip/peer/peer_events.h"
#include "gossip/peer/pending_checkpoint.h"
#include "gossip/peer/promise_memory.h"
#include "gossip/peer/report_counts.h"
#include "gossip/peer/roster_in_force.h"
#include "gossip/peer/start_patience.h"
#include "gossip/peer/unreached_neighbours.h"

namespace starling::gossip {

struct PeerOptions {
  membership::SwimOptions membership;
  std::string software = "starling-edge";
  bool listens = false;  // others can dial this peer
  Duration checkpoint_every = std::chrono::seconds(30);
  Duration report_every = std::chrono::seconds(1);
  Duration patience_min = std::chrono::seconds(2);
  Duration patience_max = std::chrono::seconds(60);
  Duration start_patience = std::chrono::seconds(60);
  std::uint64_t seed = 1;  // of what must differ between processes: probes, backoff, incarnation
};

class PeerMachine {
 public:
  // How long the end waits for what is being computed.
  static constexpr Duration kLastComputation = std::chrono::seconds(5);
  // What a member trains with in a run, from `step` on; `pace`: of a fallback.
  using MakeLocalSteps = std::function<std::shared_ptr<LocalSteps>(
      const NetworkRun& run, Member self, std::uint64_t step, std::optional<FallbackPace> pace)>;

  // `self` must outlive it.
  PeerMachine(PeerOptions options, const identity::IdentityDirectory& self,
              MakeLocalSteps make_local_steps);
  ~PeerMachine();  // at any time; the task of a trainer that is at work ends soon
  PeerMachine(const PeerMachine&) = delete;
  PeerMachine& operator=(const PeerMachine&) = delete;

  std::vector<peer::Action> on(peer::Event event, TimePoint now, WallTime wall);
  // When Tick is due; nothing while only others can move.
  std::optional<TimePoint> next_deadline() const;

  // Whether an announced transfer is wanted, asked before memory is taken for it. Where it is not,
  // TransferRefused is to follow.
  [[nodiscard]] Result<void> check(Member from, const protocol::VectorTransfer& transfer) const;
  protocol::PeerHello hello() const;  // what this peer says of itself
  // Without what the links count.
  protocol::PeerReport report(TimePoint now, WallTime wall) const;
  bool is_finished() const { return session_ && session_->training().is_finished(); }
  const RosterInForce& roster() const { return roster_; }
  // Why the run of the roster in force cannot go on here; none: it can.
  const std::optional<Error>& failure() const { return failure_; }

  const EpochSession* session() const { return session_.get(); }  // for invariants

  // A fallback's roster only stands by: its terms, while it is current and names this device.
  std::optional<FallbackTerms> standby(TimePoint now, WallTime wall) const;
  // What came of the fallback so far, without the local phase at work. None where it ended by
  // itself before it began.
  std::optional<fallback::Trained> gossiped() const;

 private:
  struct Former {  // what of a session the next one continues with
    std::string run_id;
    Settings settings;
    std::shared_ptr<LocalSteps> local;
    protocol::Support support;
    std::optional<Handover> handover;
  };

  void handle(peer::RosterReceived& came);
  void handle(peer::LinksRenewed& renewed);
  void handle(peer::LinkUp& up);
  void greeted_again(Member from, const protocol::PeerHello& hello);
  void handle(peer::LinkDown& down);
  void handle(peer::MessageReceived& came);
  void handle(peer::TransferReceived& came);
  void handle(peer::TransferProgressed& event);
  void handle(peer::TransferRefused& refused);
  void handle(peer::Prepared& prepared);
  void handle(peer::Computed& computed);
  void handle(peer::CheckpointKept& answer);
  void handle(peer::TrainerFailed& failed);
  void handle(peer::BeginFallback& begun);
  void handle(peer::EndFallback&);
  void handle(peer::Close&);
  void handle(peer::Tick&);

  RosterClock clock() const { return clock_at(now_, wall_); }
  RosterClock clock_at(TimePoint now, WallTime wall) const;
  bool is_member() const;
  bool stands_by() const;       // for a fallback that has not begun
  bool holds_fallback() const;  // a model of it
  bool is_computing() const;
  bool hears_others() const { return session_ && session_->is_open(); }
  void take(Member from, const protocol::RosterPart& part, ByteView piece);
  void refuse_roster(const Error& why, std::optional<Member> from);
  void adopt();
  void expire();
  void hold_again();
  void leave_session();
  void cancel_useless_task();
  void prepare();
  void begin_session(NetworkRun run);
  void end_session();
  void tell_session(EpochSession::Event event);
  void finished();
  void fail(const Error& error);
  void keep_checkpoint(bool model_too);
  void keep_latest(bool model_too);
  std::string problem() const;
  void greet_all();
  void keep_links();
  void send_report();
  void finish_closing();
  void act(peer::Action action) { actions_.push_back(std::move(action)); }
  void say(LogLevel level, std::string line);

  const PeerOptions options_;
  const identity::IdentityDirectory& self_;
  const MakeLocalSteps make_local_steps_;
  Rng rng_;
  TimePoint now_{};
  WallTime wall_{};
  std::vector<peer::Action> actions_;

  RosterInForce roster_;
  bool expired_ = false;  // and its links are cut
  // In this epoch: members whose roster was not taken; of none of them, why it was not.
  std::set<std::string> refused_rosters_;
  // The members of the session at work are those of an earlier roster: it is left when nothing is
  // computed, and then the present roster adopted.
  bool switching_ = false;
  // What follows the answer to SetRoster; until then the members' places are not known.
  enum class Renewal { kDone, kNobody, kSameEpoch, kNextEpoch };
  Renewal renewal_ = Renewal::kDone;
  UpLinks up_;
  std::map<Member, issuer::RosterAssembler> assemblers_;
  std::optional<protocol::Epoch> preparing_;
  bool preparation_useless_ = false;  // and cancelled: its fallback has ended
  std::shared_ptr<EpochSession> session_;
  std::optional<Former> former_;
  std::optional<EndedSession> ended_;
  StartPatience start_patience_;
  PromiseMemory promises_;
  std::optional<FallbackRun> fallback_;       // none: a fallback's roster only stands by
  std::shared_ptr<const Checkpoint> latest_;  // kept last, in this process or an earlier one
  PendingCheckpoint pending_checkpoint_;
  std::optional<Error> failure_;
  std::uint64_t failed_size_ = 0;  // of its model, as greetings said; 0: they did not
  std::string problem_;
  std::string deafness_;  // that others dial this peer in vain; empty: it listens, or nobody dials
  UnreachedNeighbours unreached_;
  bool trainer_fails_ = false;  // since it did a task

  TimePoint report_at_{};
  ReportCounts counts_;
  std::optional<TimePoint> closing_until_;  // none: it is not closing
  bool closed_ = false;
};

}  // namespace starling::gossip

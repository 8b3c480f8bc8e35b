// SPDX-License-Identifier: Apache-2.0
// What a peer's machine hears and what it asks for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/identity/roster.h"
#include "gossip/fallback/fallback_machine.h"
#include "gossip/peer/checkpoint.h"
#include "gossip/peer/network_run.h"
#include "gossip/peer/transfer_flow.h"

namespace starling::gossip::peer {

using protocol::Member;

// --- events -------------------------------------------------------------------------------------
// A verified roster of this federation. What its issuer sends just now is current, whatever this
// device's clock says; what others pass on, or an earlier process kept, is judged by the clock.
enum class Source { kIssuer, kOther };
struct RosterReceived {
  std::shared_ptr<const identity::SignedRoster> roster;
  Source source = Source::kOther;
  bool was_kept = false;  // by an earlier process
  std::optional<Member> from = {};
};
struct LinksRenewed {  // answers SetRoster, at once: the links that are up, by the new places
  std::vector<std::pair<Member, protocol::PeerHello>> up;
};
struct LinkUp {
  Member member = 0;
  protocol::PeerHello hello;
  bool is_new = true;  // else a greeting over the link that is up already
};
struct LinkDown {  // one that was up broke, or a member could not be reached
  Member member = 0;
  std::optional<Error> why = {};  // as PeerTransport says
};
struct MessageReceived {
  Member from = 0;
  protocol::Envelope envelope;  // a payload without an owner holds for the event
};
struct TransferReceived {
  Member from = 0;
  TransferFlow::Whole whole;
};
struct TransferProgressed {  // PeerMachine::check() allowed it, or a piece of it came
  Member from = 0;
  protocol::VectorTransfer transfer;
};
struct TransferRefused {  // PeerMachine::check() refused it; it says where its sender is all the
                          // same
  Member from = 0;
  protocol::VectorTransfer transfer;
};
struct Prepared {  // answers Prepare
  protocol::Epoch epoch = 0;
  Result<NetworkRun> run;
  std::optional<Checkpoint> kept = {};  // where it was asked for and is there
};
struct Computed {  // answers Compute
  std::shared_ptr<const void> session;
};
struct CheckpointKept {  // answers KeepCheckpoint
  std::shared_ptr<const Checkpoint> checkpoint;
  Result<void> kept;
};
struct TrainerFailed {  // a trainer's task, which is repeated
  std::string line;
};
// Train on by the fallback's roster that stands by, at this pace and from this model.
struct BeginFallback {
  fallback::Begin begin;
};
struct EndFallback {};
struct Close {};  // answered by Closed
struct Tick {};   // next_deadline() has passed
using Event =
    std::variant<RosterReceived, LinksRenewed, LinkUp, LinkDown, MessageReceived, TransferReceived,
                 TransferProgressed, TransferRefused, Prepared, Computed, CheckpointKept,
                 TrainerFailed, BeginFallback, EndFallback, Close, Tick>;

// --- actions, to be performed in order ----------------------------------------------------------
struct KeepRoster {  // for the next start
  std::shared_ptr<const identity::SignedRoster> roster;
};
struct SetRoster {  // who may have links: PeerTransport::set_roster, then LinksRenewed
  std::shared_ptr<const identity::SignedRoster> roster;
};
struct KeepLinks {
  std::set<Member> members;
  bool ends_idle = false;  // links with others end when they are idle
};
struct LimitMessages {  // PeerTransport::set_messages_max
  std::size_t messages_max = 1;
};
struct Reach {
  Member member = 0;
};
struct Send {
  Member to = 0;
  protocol::Message message;
  SharedBytes payload = {};
};
struct SendTransfer {
  Member to = 0;
  protocol::VectorTransfer transfer;
  SharedBytes data;
  TransferFlow::Urgency urgency = TransferFlow::Urgency::kNow;
};
// Derive the run that this roster asks for, then Prepared. What an earlier one for another epoch
// comes to is of no use any more.
struct Prepare {
  std::shared_ptr<const identity::SignedRoster> roster;
  std::size_t held = 0;  // values of the run's model that are here already
  bool wants_checkpoint = false;
};
struct CancelPreparation {};
struct Compute {  // on a thread beside the turns, then Computed
  enum class What { kTraining, kMixing };
  What what = What::kMixing;
  std::function<void()> work;
  std::shared_ptr<const void> session;  // to be held until then: the work uses it
};
struct KeepCheckpoint {  // then CheckpointKept
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const model::Layout> layout;
  bool model_too = false;  // the run is over here: its model is a result
};
// To the roster's issuer, where there is a link with it; else dropped.
struct Report {
  protocol::PeerReport report;  // without what the links count
};
struct HandIn {
  protocol::VectorTransfer transfer;
  SharedBytes model;
};
struct Say {
  LogLevel level = LogLevel::kInfo;
  std::string line;
  bool lasts = false;  // reports say it for as long as it is so, not until all are heard
};
struct Closed {};  // what was to be kept has been asked for; nothing follows
using Action =
    std::variant<KeepRoster, SetRoster, KeepLinks, LimitMessages, Reach, Send, SendTransfer,
                 Prepare, CancelPreparation, Compute, KeepCheckpoint, Report, HandIn, Say, Closed>;

}  // namespace starling::gossip::peer

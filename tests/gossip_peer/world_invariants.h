// SPDX-License-Identifier: Apache-2.0
// What must hold in a network of peers at any time, whatever faults there are. PeerWorld tells what
// happens; what does not hold fails the test with a sentence, the seed and where everyone stands.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gossip/peer/checkpoint.h"
#include "gossip/peer/peer_transport.h"
#include "gossip/peer/training_protocol.h"

namespace starling::testing {

class PeerWorld;

class WorldInvariants {
 public:
  explicit WorldInvariants(PeerWorld& world);
  ~WorldInvariants();

  // --- what happens -----------------------------------------------------------------------------
  void starting(std::size_t index);  // a process, which has read nothing yet
  void started(std::size_t index);
  void ending(std::size_t index);  // killed, or closed
  void closing(std::size_t index);
  void closed(std::size_t index);  // in good order
  void disk_disturbed(std::size_t index);
  void disk_lost(std::size_t index);
  void thawed(std::size_t index, Duration frozen);
  void forged(protocol::Epoch epoch);  // its roster is signed with a key that is revoked
  void calm();
  void said(std::size_t index, std::string_view line);
  void trains(std::size_t index);  // a local phase is about to be computed
  void checkpoint_written(std::size_t index);
  void turn(std::size_t index);  // its process hears something
  void happened();               // an event, with all that followed
  // What the process's machine hears and sends, watched.
  std::unique_ptr<gossip::PeerTransport> watch(
      std::size_t index, gossip::PeerTransport::Handlers handlers,
      const std::function<std::unique_ptr<gossip::PeerTransport>(gossip::PeerTransport::Handlers)>&
          connect);

  // --- on demand --------------------------------------------------------------------------------
  // The links of a process, to send over them what its machine would not. Null: it does not run.
  gossip::PeerTransport* links(std::size_t index) const;
  // Of push-sum and sgp: the sums over all members and what is on their edges of x, then of the
  // weight, in a ledger's units. Nothing where that is no constant: not all are in one epoch, or a
  // node of sgp took another's model and began its share anew.
  std::vector<std::uint64_t> mass() const;
  // Requires: nobody was restarted since the epoch began. The weights are as many as there are
  // members. False where there is nothing to hold to it.
  bool expect_all_mass();

 private:
  class WatchedLinks;
  // What a process was seen to do.
  struct Process {
    std::optional<gossip::Checkpoint> held;  // on its disk when it began
    std::uint64_t held_epoch = 0;            // of the roster there
    bool began = false;                      // a session
    std::string run;                         // of the session at work
    protocol::Epoch epoch = 0;
    protocol::Exchange exchange = 0;  // when last seen
    std::string trained_in;           // the run of what it trained last
    std::optional<protocol::Exchange> trained;
    bool may_go_elsewhere = false;  // since it trained it said that it does
    std::optional<TimePoint> copying_since;
    TimePoint kept_at{};            // a checkpoint, or when the session began
    protocol::Epoch copied_in = 0;  // a model, last
    gossip::PeerTransport* links = nullptr;
    bool closing = false;
    bool closing_late = false;          // it was frozen meanwhile
    std::set<std::string> untold;       // linked when the roster changed, and not greeted since
    std::set<std::string> unasked;      // a new link, and not asked for a newer roster
    protocol::Epoch roster = 0;         // in force
    std::vector<Sha256Digest> revoked;  // keys, by the roster in force
  };
  struct Peer {
    std::unique_ptr<Process> process;
    bool disk_is_good = true;
    std::uint64_t roster = 0;  // the newest that a process held
  };

  void look(std::size_t index);
  void look_at_rosters();
  const identity::Roster* newest_roster() const;
  bool are_linked(std::size_t a, std::size_t b) const;
  const std::string& name(std::size_t index) const;
  void fail(const std::string& sentence);

  PeerWorld& world_;
  std::vector<Peer> peers_;
  std::optional<TimePoint> calm_since_;
  TimePoint next_look_{};
  std::vector<std::size_t> heard_;  // something, in this event
  std::map<std::pair<std::size_t, std::size_t>, TimePoint> differ_since_;  // their rosters
  std::set<protocol::Epoch> forged_;
  bool failed_ = false;
};

}  // namespace starling::testing

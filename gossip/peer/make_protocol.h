// SPDX-License-Identifier: Apache-2.0
// The protocol that a run's algorithm asks for.
#pragma once

#include <set>

#include "core/identity/roster.h"
#include "gossip/peer/checkpoint.h"
#include "gossip/peer/exchange_machine.h"
#include "gossip/peer/local_steps.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

// Where a protocol begins.
struct ProtocolStart {
  Exchange exchange = 0;           // to go on from
  protocol::Support support = {};  // of the model, as was said of it last
  std::vector<float> model;        // [d]
  Bytes state = {};                // kept with the model (algorithm_state.h), or empty
  // Of the epoch before, in place of model and state, taken by the protocol; null: none.
  std::shared_ptr<Handover> former = {};
  std::uint32_t incarnation = 1;  // of this process, never 0: ends of edges are told apart by it
  // What it promised the others: its process was started again (collective::Memory::kNone).
  bool forgot = false;
  // How long the run has been going on, where its roster says it; see JumpBound.
  std::optional<Duration> run_age = {};
};

struct ProtocolPlace {
  protocol::Epoch epoch = 1;
  Member self = 0;
  std::vector<std::string> names;  // of all members, for sentences
  // The network runs already, and these were not there: nobody waits until they have started.
  std::set<Member> absent = {};
};

struct ProtocolPatience {
  Duration min = std::chrono::seconds(2);
  Duration max = std::chrono::seconds(60);
  // For those who were never heard: they may be starting.
  Duration start = std::chrono::seconds(60);
};

// Where a protocol begins that continues with no session before it: at `kept` (null: there is none)
// where that is of the roster's run, else with the run's initial model.
ProtocolStart start_with(const Checkpoint* kept, const identity::Roster& roster,
                         const NetworkRun& run, Member self);

// The algorithm that a protocol starts with.
std::unique_ptr<Algorithm<float>> take_algorithm(const NetworkRun& run, Member self,
                                                 ProtocolStart& start);

// How many messages of one peer to another may be of use at a time, so that no more are kept,
// queued or held. Two: where edges are mutual, whom a peer waits for is one exchange ahead at most;
// where edges change, a neighbour sends once in a while. Where the same edge is used one way at
// every exchange, nobody waits for a slow receiver until word of it has gone round, and with two it
// would lose most messages.
std::size_t messages_of_use(const NetworkRun& run);

// `run` and `local` must outlive the protocol.
std::unique_ptr<TrainingProtocol> make_protocol(const NetworkRun& run, LocalSteps& local,
                                                ProtocolPlace place,
                                                const ProtocolPatience& patience,
                                                ProtocolStart start, TimePoint now);

}  // namespace starling::gossip

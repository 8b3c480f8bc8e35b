// SPDX-License-Identifier: Apache-2.0
// Keeps the roster of a run's fallback with the clients while the run goes on, so that they have it
// when the coordinator is gone. There is one roster: of several runs with a fallback the first one
// that trains has it until its end, then the next. A network that an operator started goes first.
#pragma once

#include <map>
#include <string>

#include "coordinator/job/job.h"
#include "coordinator/service/gossip_issuer.h"

namespace starling::coordinator {

class FallbackIssuer {
 public:
  // Both must outlive it.
  FallbackIssuer(GossipIssuer& gossip, Log& log) : gossip_(gossip), log_(log) {}

  // The gossip issuer has resumed what an earlier process left: rosters may be issued.
  void begin();
  // A round of the run begins, or an earlier process began one. Jobs have the shape of their data.
  void run_trains(RunId run, const Job& job) { want(run, job, true); }
  // The run will train: it has the fallback as long as no other run trains that wants one.
  void run_loaded(RunId run, const Job& job) { want(run, job, false); }
  void run_ended(RunId run);
  // Clients have joined or were revoked, of which the gossip issuer knows.
  void members_changed() { issue(); }
  // An operator's network has ended, which went first.
  void network_stopped() { issue(); }

 private:
  struct Wanted {
    Job job;
    bool trains = false;
    std::string complaint;  // the last one, which is not repeated
  };
  void want(RunId run, const Job& job, bool trains);
  void issue();
  Result<void> give(RunId run, const Job& job);

  GossipIssuer& gossip_;
  Log& log_;
  bool begun_ = false;
  std::map<RunId, Wanted> wanted_;
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// Keeps the roster of the run's fallback with the clients while the run goes on, so that they have
// it when the coordinator is gone. A network that an operator started goes first.
#pragma once

#include <optional>
#include <string>

#include "coordinator/gossip_issuer.h"
#include "coordinator/job.h"

namespace starling::coordinator {

class FallbackIssuer {
 public:
  // Both must outlive it.
  FallbackIssuer(GossipIssuer& gossip, Log& log) : gossip_(gossip), log_(log) {}

  // The gossip issuer has resumed what an earlier process left: rosters may be issued.
  void begin();
  // The run that trains from now on, with the shape of its data; the same again changes nothing.
  void run_trains(RunId run, const Job& job);
  // The run that will train, unless another one does.
  void run_loaded(RunId run, const Job& job) {
    if (!run_) run_trains(run, job);
  }
  void run_ended(RunId run);
  // Clients have joined or were revoked, of which the gossip issuer knows.
  void members_changed() { issue(); }
  // An operator's network has ended, which went first.
  void network_stopped() { issue(); }

 private:
  struct Wanted {
    RunId run;
    Job job;
  };
  void issue();
  void withdraw();

  GossipIssuer& gossip_;
  Log& log_;
  bool begun_ = false;
  std::optional<RunId> run_;  // that trains
  std::optional<Wanted> wanted_;
  std::string complaint_;  // the last one, which is not repeated
};

}  // namespace starling::coordinator

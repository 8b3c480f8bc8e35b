// SPDX-License-Identifier: Apache-2.0
// What all training protocols have: where they are, and the work on their host's computing thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/seldom_line.h"
#include "gossip/peer/local_steps.h"
#include "gossip/peer/make_protocol.h"
#include "gossip/peer/network_run.h"
#include "gossip/peer/training_protocol.h"
#include "gossip/training/step_schedule.h"

namespace starling::gossip {

class ProtocolBase : public TrainingProtocol {
 public:
  bool is_computing() const final { return computing_; }
  void suspect(Member donor) final { suspect_ = donor; }

 protected:
  // All references must outlive the protocol.
  ProtocolBase(const NetworkRun& run, LocalSteps& local, ProtocolHost& host, Member self,
               std::vector<std::string> names);

  // `work` on the computing thread gives the sum of the losses of this phase's steps, then `done`
  // gets it, unless the training failed: then the host has been told.
  void train(const LocalPhase& phase, std::function<Result<double>()> work,
             std::function<void(double loss_sum)> done);
  // Other work, then `done`.
  void compute(std::function<void()> work, std::function<void()> done);
  // Counts these losses. False: they are no number, and the host has been told. `suspect`: who may
  // be the cause; none: a donor that is suspected.
  bool learned(double loss_sum, const LocalPhase& phase, std::optional<Member> suspect = {});
  // Whether a member can be at this exchange: the run ends at `exchanges_`. Names it if not, now
  // and then.
  bool is_possible(Member from, Exchange exchange);
  // Now and then.
  void say_who_drained(std::optional<Member> taker);
  LocalPhase phase_of(Exchange exchange) const;
  TrainingProgress progress_at(std::string_view state, Exchange exchange) const;

  const NetworkRun& run_;
  const StepSchedule schedule_;
  const Exchange exchanges_;  // of the run
  LocalSteps& local_;
  ProtocolHost& host_;
  const Member self_;
  const std::vector<std::string> names_;

 private:
  bool computing_ = false;
  double loss_sum_ = 0;
  std::uint64_t loss_steps_ = 0;
  std::optional<Member> suspect_;  // a donor
  SeldomLine drained_;
  std::map<Member, SeldomLine> impossible_;
};

}  // namespace starling::gossip

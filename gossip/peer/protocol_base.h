// SPDX-License-Identifier: Apache-2.0
// What all training protocols have: where they are, what they ask for, and what follows it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  std::vector<training::Action> on(training::Event event, TimePoint now) final;
  bool is_computing() const final { return done_ != nullptr; }

 protected:
  // `run` and `local` must outlive the protocol.
  ProtocolBase(const NetworkRun& run, LocalSteps& local, const ProtocolPlace& place, TimePoint now);

  // Calls the handle() of its type. These mean the same to all protocols, or nothing to some.
  virtual void dispatch(training::Event& event) = 0;
  void handle(const peer::Computed&) { std::exchange(done_, nullptr)(); }
  void handle(const training::DonorSuspected& suspected) { suspect_ = suspected.donor; }
  void handle(const training::Leave&) { is_leaving_ = true; }
  void handle(const peer::MessageReceived&) {}
  void handle(const peer::TransferRefused&) {}

  void act(training::Action action) { actions_.push_back(std::move(action)); }
  void say(LogLevel level, std::string line) { act(peer::Say{level, std::move(line)}); }
  // `work` on another thread gives the sum of the losses of this phase's steps, then `done` gets
  // it, unless the training failed. Requires: !is_computing().
  void train(const LocalPhase& phase, std::function<Result<double>()> work,
             std::function<void(double loss_sum)> done);
  // Other work, then `done`. The same.
  void compute(std::function<void()> work, std::function<void()> done);
  // Counts these losses. False: they are no number, so that the training failed. `suspect`: who may
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
  const protocol::Epoch epoch_;
  const Member self_;
  const std::vector<std::string> names_;
  TimePoint now_;  // of the last event
  bool is_leaving_ = false;

 private:
  std::vector<training::Action> actions_;
  std::function<void()> done_;  // of what is being computed
  double loss_sum_ = 0;
  std::uint64_t loss_steps_ = 0;
  std::optional<Member> suspect_;  // a donor
  SeldomLine drained_;
  std::map<Member, SeldomLine> impossible_;
};

}  // namespace starling::gossip

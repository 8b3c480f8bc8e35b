// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fallback_issuer.h"

#include <fmt/format.h>

#include "coordinator/fallback_network.h"

namespace starling::coordinator {
namespace {

GossipRun network_of(RunId run, const Job& job) {
  gossip::NetOptions options = fallback_options(job);
  config::Binder binder;
  options.bind(binder);
  Settings settings = binder.settings();
  for (auto& setting : gossip::fallback_settings(fallback_terms(run, job))) {
    settings.push_back(std::move(setting));
  }
  return {fmt::format("fallback-of-run-{}", run.value()), std::move(settings)};
}

}  // namespace

void FallbackIssuer::begin() {
  begun_ = true;
  if (!wanted_) withdraw();
  issue();
}

void FallbackIssuer::run_trains(RunId run, const Job& job) {
  if (run_ == run) return;
  run_ = run;
  wanted_.reset();
  complaint_.clear();
  if (job.fallback.enabled()) wanted_ = Wanted{run, job};
  if (!wanted_) withdraw();
  issue();
}

void FallbackIssuer::run_ended(RunId run) {
  if (run_ != run) return;
  run_.reset();
  wanted_.reset();
  withdraw();
}

// A run's end, or one without a fallback: nobody is to train for the one before any more.
void FallbackIssuer::withdraw() {
  const identity::Roster* roster = gossip_.roster();
  if (!begun_ || roster == nullptr || !gossip::is_fallback(roster->settings)) return;
  const auto stopped = gossip_.stop();
  if (!stopped) log_.error("the fallback's roster stays: {}", stopped.error().message());
}

void FallbackIssuer::issue() {
  if (!begun_ || !wanted_) return;
  const GossipRun network = network_of(wanted_->run, wanted_->job);
  const identity::Roster* roster = gossip_.roster();
  const bool runs = roster != nullptr && !roster->stopped();
  if (runs && roster->run == network.name) return;
  Result<void> started;
  if (runs && !gossip::is_fallback(roster->settings)) {
    started = rejected("other-network", fmt::format("the gossip network {} is running; end it with "
                                                    "'gossip stop'",
                                                    roster->run));
  } else {
    started = gossip_.start(network, wanted_->job.fallback.lifetime);
  }
  const std::string complaint = started ? "" : started.error().message();
  if (!started && complaint != complaint_) {
    log_.warning("run {} has no fallback yet: {}", wanted_->run.value(), complaint);
  }
  complaint_ = complaint;
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/fallback_issuer.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "coordinator/job/fallback_network.h"

namespace starling::coordinator {
namespace {

std::string name_of(RunId run) { return fmt::format("fallback-of-run-{}", run.value()); }

GossipRun network_of(RunId run, const Job& job) {
  Settings settings = fallback_options(job).device_settings();
  for (auto& setting : gossip::fallback_settings(fallback_terms(run, job))) {
    settings.push_back(std::move(setting));
  }
  return {name_of(run), std::move(settings)};
}

}  // namespace

void FallbackIssuer::begin() {
  begun_ = true;
  issue();
}

void FallbackIssuer::want(RunId run, const Job& job, bool trains) {
  if (!job.fallback.enabled()) return;
  const auto [found, added] = wanted_.try_emplace(run);
  Wanted& wanted = found->second;
  if (!added && wanted.trains >= trains) return;  // as at all rounds but the first
  wanted.job = job;
  wanted.trains = trains;
  issue();
}

void FallbackIssuer::run_ended(RunId run) {
  if (wanted_.erase(run) > 0) issue();
}

// Of a run that goes before those that have no roster.
Result<void> FallbackIssuer::give(RunId run, const Job& job) {
  const identity::Roster* roster = gossip_.roster();
  const bool runs = roster != nullptr && !roster->stopped();
  if (runs && roster->run == name_of(run)) return {};
  if (runs && !gossip::is_fallback(roster->settings)) {
    return rejected(
        "other-network",
        fmt::format("the gossip network {} is running; end it with 'gossip stop'", roster->run));
  }
  return gossip_.start(network_of(run, job), job.fallback.lifetime);
}

void FallbackIssuer::issue() {
  if (!begun_) return;
  const identity::Roster* roster = gossip_.roster();
  const std::string before = roster != nullptr && !roster->stopped() ? roster->run : "";
  std::vector<std::pair<const RunId, Wanted>*> first;
  for (auto& entry : wanted_) first.push_back(&entry);
  std::ranges::stable_sort(first, {}, [&](const auto* entry) {
    return std::tuple(!entry->second.trains, name_of(entry->first) != before);
  });
  std::optional<RunId> holder;
  for (auto* entry : first) {
    auto& [run, wanted] = *entry;
    const Result<void> given =
        holder
            ? rejected("other-fallback", fmt::format("that of run {} goes first", holder->value()))
            : give(run, wanted.job);
    if (given) holder = run;
    const std::string complaint = given ? "" : given.error().message();
    if (!given && complaint != wanted.complaint) {
      log_.warning("run {} has no fallback yet: {}", run.value(), complaint);
    }
    wanted.complaint = complaint;
  }
  if (holder) return;
  roster = gossip_.roster();
  if (roster == nullptr || !gossip::is_fallback(roster->settings)) return;
  const auto stopped = gossip_.stop();
  if (!stopped) log_.error("the fallback's roster stays: {}", stopped.error().message());
}

}  // namespace starling::coordinator

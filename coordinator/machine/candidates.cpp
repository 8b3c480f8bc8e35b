// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/run_scope.h"
#include "core/base/counted.h"

namespace starling::coordinator {
namespace {

std::string when_again(const ClientPauses& pauses, const ClientPauses::Row& row) {
  return fmt::format("it is asked again from round {} on{}", row.next_chance,
                     pauses.may_come_back(row) ? ", or once it has connected again" : "");
}

}  // namespace

Candidates::Candidates(const RunStart& run, const ClientTable& clients, const Turn& turn)
    : run_(run), clients_(clients), turn_(turn) {}

void Candidates::went_away(const std::string& name, const ClientTable::Client& client) {
  if (!client.seen || client.said_goodbye) return;
  away_.set(name, client.away_since + run_.job.round.reconnect_grace);
}

// --- who may be asked ---------------------------------------------------------------------------

std::optional<std::vector<std::string>> Candidates::to_train() {
  const Round next = run_.at.version.round + 1;
  const auto awaited =
      static_cast<std::size_t>(next == 1 ? run_.job.clients_awaited() : run_.job.updates_needed());
  away_.take_due(turn_.now);
  const std::size_t may_come = next == 1 ? 0 : away_.size();
  if (clients_.count_connected() - clients_.count_connected_at_work() + may_come < awaited) {
    wait_for(awaited, protocol::TaskKind::kTrain);
    return std::nullopt;
  }
  // Nothing has changed since too few were found: neither has the answer.
  if (awaited_ > 0 && looked_at_version_ == clients_.version()) return std::nullopt;
  std::vector<std::string> names = who_may_be_asked(protocol::TaskKind::kTrain);
  const auto connected = [&] {
    return static_cast<std::size_t>(std::ranges::count_if(
        names, [this](const std::string& name) { return clients_.connected(name); }));
  };
  if ((next == 1 ? connected() : names.size()) < awaited) {
    looked_at_version_ = clients_.version();
    wait_for(awaited, protocol::TaskKind::kTrain);
    return std::nullopt;
  }
  prefer_those_in_time(names, next, static_cast<std::size_t>(run_.job.updates_needed()));
  return names;
}

std::optional<std::vector<std::string>> Candidates::to_evaluate(std::size_t needed,
                                                                std::size_t wanted, bool may_wait) {
  if (may_wait && still_waits_to_evaluate()) return std::nullopt;
  const auto choose = [&](bool or_is_at_work) {
    auto names = who_may_be_asked(protocol::TaskKind::kEvaluate, or_is_at_work);
    prefer_those_in_time(names, run_.at.version.round, needed);
    return names;
  };
  std::vector<std::string> names = choose(may_wait);
  if (!may_wait || names.size() < needed) return choose(false);
  const std::size_t awaited = std::min(wanted, names.size());
  std::erase_if(names,
                [this](const std::string& name) { return !clients_.find(name)->tasks.empty(); });
  if (names.size() >= awaited) return names;
  looked_at_version_ = clients_.version();
  looked_at_presence_ = clients_.presence_version();
  wait_for(awaited, protocol::TaskKind::kEvaluate);
  return std::nullopt;
}

// Without a look at each client, at an event that frees one of many. For how many the run waits
// depends on who is present alone.
bool Candidates::still_waits_to_evaluate() {
  const bool is_present_as_before =
      away_.take_due(turn_.now).empty() && looked_at_presence_ == clients_.presence_version();
  if (awaited_ == 0 || !is_present_as_before) return false;
  if (looked_at_version_ == clients_.version()) return true;
  const std::size_t free = clients_.count_connected() - clients_.count_connected_at_work();
  return free + away_.size() < awaited_;
}

// Asked at every event while some are missing: the one that was missing before is looked at first.
bool Candidates::all_connected(const std::vector<std::string>& names) {
  const auto there = [this](const std::string& name) {
    const ClientTable::Client* client = clients_.find(name);
    return client != nullptr && client->session && client->tasks.empty();
  };
  if (!missing_.empty() && !there(missing_)) return false;
  work_ += names.size();
  const auto missing = std::ranges::find_if_not(names, there);
  missing_ = missing == names.end() ? "" : *missing;
  return missing == names.end();
}

// Clients that let one training after another pass are asked where a round, or an evaluation,
// cannot do without them: where all are slow, the updates of a later attempt may still be in time.
void Candidates::prefer_those_in_time(std::vector<std::string>& names, Round round,
                                      std::size_t needed) const {
  std::vector<std::string> in_time;
  std::ranges::copy_if(names, std::back_inserter(in_time),
                       [&](const std::string& name) { return !run_.missed.left_out(name, round); });
  if (in_time.size() >= needed) names = std::move(in_time);
}

// Connected, or away for less than the grace without a goodbye, able and not at work; or, where it
// says so, at work: how long such a client may be away is up to the run that it works for.
std::vector<std::string> Candidates::who_may_be_asked(protocol::TaskKind kind,
                                                      bool or_is_at_work) const {
  work_ += clients_.size();
  const bool evaluates = kind == protocol::TaskKind::kEvaluate;
  const Round round = run_.at.version.round;
  const Duration grace = run_.job.round.reconnect_grace;
  const auto may_be_asked_now = [&](const ClientTable::Client& client) {
    if (!client.tasks.empty()) return or_is_at_work;
    return client.session || (!client.said_goodbye && turn_.now < client.away_since + grace);
  };
  std::vector<std::string> names;
  for (const auto& [name, client] : clients_.all()) {
    if (!client.seen || !may_be_asked_now(client) || run_.failures.left_out(name)) continue;
    if (evaluates && run_.evaluation_failures.left_out(name, round)) continue;
    if (inability(client, kind).empty()) names.push_back(name);
  }
  return names;
}

// --- who cannot, and why ------------------------------------------------------------------------

std::string Candidates::inability(const ClientTable::Client& client,
                                  protocol::TaskKind kind) const {
  return why_unfit(client, run_.abilities, run_.job.training.data, kind);
}

std::uint64_t Candidates::count_able() const {
  work_ += clients_.size();
  return static_cast<std::uint64_t>(
      std::ranges::count_if(clients_.all(), [this](const auto& entry) {
        return inability(entry.second, protocol::TaskKind::kTrain).empty();
      }));
}

Candidates::Reach Candidates::reach() const {
  work_ += clients_.size();
  Reach reach{.admitted = clients_.size(), .connected = clients_.count_connected()};
  const Round next = run_.at.version.round + 1;
  const ClientPauses& missed = run_.missed;
  const ClientPauses& evaluations = run_.evaluation_failures;
  for (const auto& [name, client] : clients_.all()) {
    const std::string* failure = run_.failures.why_left_out(name);
    std::string why = failure ? "its tasks of this run failed: " + *failure
                              : inability(client, protocol::TaskKind::kTrain);
    if (!why.empty()) {
      reach.left_out.push_back({name, std::move(why)});
      continue;
    }
    if (const auto* row = missed.find_left_out(name, next)) {
      reach.left_out.push_back(
          {name,
           fmt::format("{} trainings in a row ended without its update ({}); {}, or where a round "
                       "has too few other clients",
                       row->in_a_row, row->reason, when_again(missed, *row)),
           true});
    } else if (const auto* failed = evaluations.find_left_out(name, next)) {
      reach.left_out.push_back(
          {name,
           fmt::format("it may train and is not asked to evaluate; {} evaluations that were waited "
                       "for failed, without one that counted between: {}; {}",
                       failed->in_a_row, failed->reason, when_again(evaluations, *failed)),
           true});
    }
    ++reach.able;
    if (client.session) ++reach.connected_able;
  }
  return reach;
}

std::string Candidates::describe_unable() const {
  std::size_t count = 0;
  std::string text;
  for (const auto& [name, client] : clients_.all()) {
    const std::string why = inability(client, protocol::TaskKind::kTrain);
    if (why.empty() || ++count > kNamedMax) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, why);
  }
  if (count == 0) return "";
  if (count > kNamedMax) text += fmt::format("; and {} more", count - kNamedMax);
  return fmt::format("{} of {} cannot take part in this run ({})", count,
                     counted(clients_.size(), "client"), text);
}

// Of the admitted clients, by what is known of them.
std::string Candidates::why_too_few_evaluate() const {
  work_ += clients_.size();
  const Round round = run_.at.version.round;
  std::size_t holders = 0, unable = 0, busy = 0, away = 0;
  for (const auto& [name, client] : clients_.all()) {
    if (!holds_rows_out(client.greeting)) continue;
    ++holders;
    if (!inability(client, protocol::TaskKind::kEvaluate).empty() || run_.failures.left_out(name) ||
        run_.evaluation_failures.left_out(name, round)) {
      ++unable;
    } else if (!client.tasks.empty()) {
      ++busy;
    } else if (!client.session) {
      ++away;
    }
  }
  if (holders == 0) {
    return fmt::format(
        "none of the {} holds rows out (data.hold-out in edge.toml, or a trainer's 'evaluate')",
        counted(clients_.size(), "client"));
  }
  std::string text = fmt::format(
      "{} rows out: {} at work for other runs, {} not connected, {} cannot do this run "
      "or left out",
      holders == 1 ? "1 client holds" : fmt::format("{} clients hold", holders), busy, away,
      unable);
  const AggregationOptions& aggregation = run_.job.aggregation;
  if (aggregation.updates_min() > 1) {
    text += fmt::format("; aggregation.trim = {} needs {}", aggregation.trim,
                        aggregation.updates_min());
  }
  if (run_.job.evaluations_wanted() < aggregation.updates_min()) {
    text +=
        fmt::format(", and evaluate.federated-cohort is {}", run_.job.evaluate.federated_cohort);
  }
  return text;
}

// --- waiting ------------------------------------------------------------------------------------

void Candidates::wait_for(std::size_t awaited, protocol::TaskKind kind) {
  if (awaited_ == awaited && awaited_for_ == kind) return;
  awaited_ = awaited;
  awaited_for_ = kind;
  held_up_ = {};
}

bool Candidates::held_up_by_others() const {
  if (awaited_ == 0 || clients_.count_connected() < awaited_) return false;
  if (clients_.count_connected_at_work() == 0) return false;
  if (held_up_.first != clients_.presence_version()) {
    held_up_ = {clients_.presence_version(), count_connected_able() >= awaited_};
  }
  return held_up_.second;
}

// Of those for which the run waits, also at work.
std::size_t Candidates::count_connected_able() const {
  if (awaited_for_ == protocol::TaskKind::kTrain) return reach().connected_able;
  return static_cast<std::size_t>(
      std::ranges::count_if(who_may_be_asked(awaited_for_, true),
                            [this](const std::string& name) { return clients_.connected(name); }));
}

std::string Candidates::describe_awaited() const {
  if (awaited_for_ == protocol::TaskKind::kEvaluate) {
    const auto able = who_may_be_asked(awaited_for_, true);
    const auto at_work = std::ranges::count_if(
        able, [this](const std::string& name) { return !clients_.find(name)->tasks.empty(); });
    return fmt::format("{} to evaluate ({} at work for other runs)", counted(awaited_, "client"),
                       at_work);
  }
  const Reach reach = this->reach();
  const std::size_t busy = clients_.count_connected_at_work();
  std::string there = describe_connected(reach.connected, reach.connected_able);
  if (busy > 0) there += fmt::format(", {} at work for other runs", busy);
  return fmt::format("{} ({})", counted(awaited_, "client"), there);
}

}  // namespace starling::coordinator

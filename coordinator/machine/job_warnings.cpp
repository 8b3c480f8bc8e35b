// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/job_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "coordinator/job/job_text.h"
#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/data_shape.h"
#include "core/base/counted.h"
#include "core/config/needs.h"

namespace starling::coordinator {
namespace {

using config::ReadBy;
const std::vector<ReadBy> kReadBy = {
    ReadBy{"model.kind", {"external"}, {"model.initial", "model.layout"}},
    ReadBy{"model.kind",
           {"softmax-regression", "mlp", "cnn"},
           {"data.dataset", "data.partition", "data.hold-out", "data.input", "data.classes",
            "data.columns", "data.class-names", "data.match"}},
    ReadBy{"train.local-steps", {"0"}, {"train.local-epochs"}},
    ReadBy{"aggregation.rule", {"trimmed-mean"}, {"aggregation.trim"}},
};

// Keys that need another one to be set at all.
using config::Needs;
const std::vector<Needs> kNeeds = {
    Needs{"stop.metric", "none", {"stop.mode", "stop.patience", "stop.min-change"}},
    Needs{"evaluate.dataset", "", {"evaluate.every"}},
    Needs{"evaluate.federated-every", "0", {"evaluate.federated-cohort"}},
    Needs{"fallback.topology",
          "",
          {"fallback.after", "fallback.local-steps", "fallback.merge-within", "fallback.lifetime"}},
};

struct Keys {
  Settings settings;
  Settings defaults;

  bool is_changed(std::string_view key) const { return find(settings, key) != find(defaults, key); }

 private:
  static const std::string& find(const Settings& all, std::string_view key) {
    return std::ranges::find(all, key, &Settings::value_type::first)->second;
  }
};

// Of the clients that said what they can.
struct Fitness {
  std::size_t spoke = 0;
  std::size_t unfit = 0;
  std::map<std::string, std::size_t> reasons;  // and how many cannot because of each

  // "2 cannot, each because its rows have another shape". Requires: some are unfit.
  std::string describe() const {
    const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
    return fmt::format("{} cannot{} because {}", most->second, most->second > 1 ? ", each" : "",
                       most->first);
  }
};

Fitness fitness_for(protocol::TaskKind kind, const Job& job, const ClientTable& clients,
                    const strategy::Catalogue& strategies) {
  client::TrainingSettings settings = job.training;
  settings.strategy = strategies.for_clients(settings.strategy);
  const std::vector<std::string> abilities = needed_abilities(settings);
  Fitness fitness;
  for (const auto& [name, client] : clients.all()) {
    const Greeting& greeting = client.greeting;
    if (!client.greeted && greeting == Greeting{}) continue;
    ++fitness.spoke;
    std::string why = why_unfit(client, abilities, job.training.data, kind);
    if (why.empty()) continue;
    ++fitness.unfit;
    const bool by_rows = kind == protocol::TaskKind::kTrain || holds_rows_out(greeting);
    if (by_rows && !greeting.input.empty()) {
      why += fmt::format(" ({})", describe_shape(shape_of(greeting)));
    }
    ++fitness.reasons[why];
  }
  return fitness;
}

std::vector<std::string> unable_clients(const Job& job, const ClientTable& clients,
                                        const strategy::Catalogue& strategies) {
  const Fitness fitness = fitness_for(protocol::TaskKind::kTrain, job, clients, strategies);
  const std::size_t able = clients.size() - fitness.unfit;
  const auto needed = static_cast<std::size_t>(job.clients_awaited());
  if (fitness.unfit == 0 || able >= needed) return {};
  return {fmt::format("{} of {} admitted clients can do this run, which needs {}; {}", able,
                      clients.size(), needed, fitness.describe())};
}

std::vector<std::string> clients_of_more_classes(const Job& job, const ClientTable& clients) {
  const client::DataShape& shape = job.training.data;
  std::size_t count = 0;
  int largest = shape.classes;
  for (const auto& [name, client] : clients.all()) {
    const client::DataShape announced = shape_of(client.greeting);
    if (shape.classes == 0 || announced.classes <= shape.classes) continue;
    if (announced.input.empty() || announced.input != shape.input) continue;
    ++count;
    largest = std::max(largest, announced.classes);
  }
  if (count == 0) return {};
  return {
      fmt::format("{} of {} admitted clients announce more than the {} classes of this run, up "
                  "to {}, and are left out of it; data.classes sets the number",
                  count, clients.size(), shape.classes, largest)};
}

std::vector<std::string> missing_evaluators(const Job& job, const ClientTable& clients,
                                            const strategy::Catalogue& strategies) {
  if (job.evaluate.federated_every == 0) return {};
  const Fitness fitness = fitness_for(protocol::TaskKind::kEvaluate, job, clients, strategies);
  const std::size_t able = fitness.spoke - fitness.unfit;
  const auto needed = static_cast<std::size_t>(job.aggregation.updates_min());
  if (fitness.spoke == 0 || able >= needed) return {};
  const bool any_rows = std::ranges::any_of(
      clients.all(), [](const auto& entry) { return holds_rows_out(entry.second.greeting); });
  std::string why =
      "none holds rows out for it (data.hold-out in edge.toml, or a trainer's 'evaluate')";
  if (any_rows) {
    why = fmt::format("{} can evaluate, which needs {}",
                      able == 0 ? "none" : fmt::format("{}", able), needed);
    if (fitness.unfit > 0) why += "; " + fitness.describe();
  }
  return {fmt::format("evaluate.federated-every is set, and of the {} that connected so far {}",
                      counted(fitness.spoke, "client"), why)};
}

}  // namespace

std::vector<std::string> warnings_of_keys(const Job& job, const strategy::Catalogue& strategies) {
  std::vector<std::string> sentences =
      strategies.unused_settings(job.training.strategy, job.server);
  const Keys keys{job_settings(job), job_settings(Job())};
  for (const auto& rules : {config::readers_in_training("train.step-rounds"), kReadBy}) {
    std::ranges::move(config::unread_keys(rules, keys.settings, keys.defaults),
                      std::back_inserter(sentences));
  }
  std::ranges::move(config::unmet_needs(kNeeds, keys.settings, keys.defaults),
                    std::back_inserter(sentences));
  const std::string& norm_max = job.aggregation.norm_max;
  if (norm_max != kNormMaxOfStrategy && norm_max != "off") {
    const auto strategy = strategies.make_server(job.training.strategy, job.server).value();
    if (const auto bounded = strategy->instead_of_step(); !bounded.empty()) {
      sentences.push_back(
          fmt::format("aggregation.norm-max = \"{}\" bounds {} with strategy.name = {}: it may "
                      "refuse honest clients",
                      norm_max, bounded, job.training.strategy.name));
    }
  }
  return sentences;
}

std::vector<std::string> warnings_of_world(const Job& job, WorldOptions world) {
  const auto settings_of = [](WorldOptions& options) {
    config::Binder binder;
    options.bind(binder);
    return binder.settings();
  };
  WorldOptions defaults;
  const Keys keys{settings_of(world), settings_of(defaults)};
  std::vector<std::string> sentences;
  for (const char* key : {"network.retransmit", "network.deadline"}) {
    if (!keys.is_changed(key)) continue;
    sentences.push_back(fmt::format(
        "{} has no effect: the links of a federation always send again what is lost", key));
  }
  std::ranges::move(
      config::unmet_needs(config::needs_of_simulation(), keys.settings, keys.defaults),
      std::back_inserter(sentences));
  if (job.training.model.is_external() && job.training.train.local_steps == 0 &&
      keys.is_changed("nodes.step-time")) {
    sentences.push_back(
        "nodes.step-time has no effect: with model.kind = external and epochs the steps of a "
        "client "
        "are not known before it trains (it needs train.local-steps)");
  }
  if (job.fallback.enabled() && world.coordinator_link.coordinator_away.empty()) {
    sentences.push_back(
        "fallback.topology has no effect: the coordinator is never away "
        "(network.coordinator-away is not set)");
  }
  return sentences;
}

std::vector<std::string> job_warnings(const Job& job, const ClientTable& clients,
                                      const strategy::Catalogue& strategies) {
  std::vector<std::string> sentences = warnings_of_keys(job, strategies);
  for (const auto& more :
       {missing_evaluators(job, clients, strategies), unable_clients(job, clients, strategies),
        clients_of_more_classes(job, clients)}) {
    sentences.insert(sentences.end(), more.begin(), more.end());
  }
  return sentences;
}

}  // namespace starling::coordinator

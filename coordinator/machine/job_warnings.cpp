// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/job_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "coordinator/job/job_text.h"
#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/data_shape.h"
#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/client/abilities.h"

namespace starling::coordinator {
namespace {

// Keys that only some values of another key read.
struct ReadBy {
  std::string_view owner;
  std::vector<std::string_view> values;
  std::vector<std::string_view> keys;
};
const std::vector<ReadBy> kReadBy = {
    ReadBy{"model.kind", {"mlp"}, {"model.hidden"}},
    ReadBy{"model.kind", {"cnn"}, {"model.channels", "model.kernel-size", "model.dense"}},
    ReadBy{"train.optimizer", {"momentum", "nesterov"}, {"train.momentum"}},
    ReadBy{"train.optimizer", {"adam", "adamw"}, {"train.beta1", "train.beta2", "train.epsilon"}},
    ReadBy{"train.schedule", {"step"}, {"train.step-rounds", "train.gamma"}},
    ReadBy{"train.local-steps", {"0"}, {"train.local-epochs"}},
    ReadBy{"aggregation.rule", {"trimmed-mean"}, {"aggregation.trim"}},
};

// Keys that need another one to be set at all.
struct Needs {
  std::string_view owner;
  std::string_view unset;
  std::vector<std::string_view> keys;
};
const std::vector<Needs> kNeeds = {
    Needs{"stop.metric", "none", {"stop.patience", "stop.min-change"}},
    Needs{"evaluate.dataset", "", {"evaluate.every"}},
    Needs{"evaluate.federated-every", "0", {"evaluate.federated-cohort"}},
    Needs{"fallback.topology",
          "",
          {"fallback.after", "fallback.local-steps", "fallback.merge-within", "fallback.lifetime"}},
};

std::vector<std::string> unable_clients(const Job& job, const ClientTable& clients,
                                        const strategy::Catalogue& strategies) {
  const auto half = strategies.for_clients(job.training.strategy).name;
  const std::vector<std::string> abilities = needed_abilities(half);
  std::map<std::string, std::size_t> reasons;
  std::size_t able = clients.size();
  for (const auto& [name, client] : clients.all()) {
    std::string why = why_unfit(client, abilities, job.training.data, protocol::TaskKind::kTrain);
    if (why.empty()) continue;
    --able;
    const Greeting& greeting = client.greeting;
    if (!greeting.input.empty()) {
      why += fmt::format(" ({})", describe_shape(shape_of(greeting)));
    }
    ++reasons[why];
  }
  const auto needed = static_cast<std::size_t>(job.clients_awaited());
  if (reasons.empty() || able >= needed) return {};
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  return {fmt::format(
      "{} of {} admitted clients can do this run, which needs {}; {} cannot{} because {}", able,
      clients.size(), needed, most->second, most->second > 1 ? ", each" : "", most->first)};
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

std::vector<std::string> missing_evaluators(const Job& job, const ClientTable& clients) {
  if (job.evaluate.federated_every == 0) return {};
  std::size_t spoke = 0;
  for (const auto& [name, client] : clients.all()) {
    if (std::ranges::binary_search(client.greeting.abilities, client::kEvaluateAbility)) return {};
    if (client.greeting != Greeting{}) ++spoke;
  }
  if (spoke == 0) return {};
  return {
      fmt::format("evaluate.federated-every is set, and of the {} that connected so far none "
                  "holds rows out for it (data.hold-out in edge.toml)",
                  counted(spoke, "client"))};
}

}  // namespace

std::vector<std::string> warnings_of_keys(const Job& job, const strategy::Catalogue& strategies) {
  std::vector<std::string> sentences =
      strategies.unused_settings(job.training.strategy, job.server);
  const Settings settings = job_settings(job);
  const Settings defaults = job_settings(Job());
  const auto value_of = [](const Settings& all, std::string_view key) -> const std::string& {
    return std::ranges::find(all, key, &Settings::value_type::first)->second;
  };
  const auto is_changed = [&](std::string_view key) {
    return value_of(settings, key) != value_of(defaults, key);
  };
  for (const ReadBy& rule : kReadBy) {
    const std::string& value = value_of(settings, rule.owner);
    if (std::ranges::count(rule.values, value) > 0) continue;
    for (const std::string_view key : rule.keys) {
      if (!is_changed(key)) continue;
      sentences.push_back(fmt::format("{} has no effect: {} is {} (it needs {})", key, rule.owner,
                                      value, join_names(rule.values, "or")));
    }
  }
  for (const Needs& rule : kNeeds) {
    if (value_of(settings, rule.owner) != rule.unset) continue;
    for (const std::string_view key : rule.keys) {
      // A 0 turns off what is not on.
      if (!is_changed(key) || value_of(settings, key) == "0") continue;
      sentences.push_back(fmt::format("{} has no effect: {} is not set", key, rule.owner));
    }
  }
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

std::vector<std::string> job_warnings(const Job& job, const ClientTable& clients,
                                      const strategy::Catalogue& strategies) {
  std::vector<std::string> sentences = warnings_of_keys(job, strategies);
  for (const auto& more :
       {missing_evaluators(job, clients), unable_clients(job, clients, strategies),
        clients_of_more_classes(job, clients)}) {
    sentences.insert(sentences.end(), more.begin(), more.end());
  }
  return sentences;
}

}  // namespace starling::coordinator

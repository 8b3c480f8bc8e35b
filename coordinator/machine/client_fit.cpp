// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/client/abilities.h"

namespace starling::coordinator {
namespace {

bool is_model(const std::string& ability) { return ability.starts_with(client::kModelPrefix); }

bool is_built_in_model(const std::string& ability) {
  return is_model(ability) && !ability.ends_with(model::kExternalKind);
}

// What clients of the first version can do without saying so.
bool knows_only_the_first_version(const Greeting& greeting) { return greeting.abilities.empty(); }

}  // namespace

std::vector<std::string> needed_abilities(const client::TrainingSettings& settings) {
  std::vector<std::string> words = {std::string(client::kModelPrefix) + settings.model.kind};
  if (settings.strategy.name != "fedavg") words.push_back(settings.strategy.name);
  const bool external = settings.model.is_external();
  if (!settings.data.class_names.empty() && !external) words.emplace_back(client::kNamesAbility);
  if (settings.data.scales() && !external) words.emplace_back(client::kScaleAbility);
  return words;
}

bool holds_rows_out(const Greeting& greeting) {
  return std::ranges::binary_search(greeting.abilities, client::kEvaluateAbility);
}

bool sends_sparse(const Greeting& greeting) {
  return std::ranges::binary_search(greeting.abilities, client::kSparseAbility);
}

namespace {

bool has_own_trainer(const Greeting& greeting) {
  return std::ranges::binary_search(greeting.abilities,
                                    std::string(client::kModelPrefix).append(model::kExternalKind));
}

std::string why_it_lacks(const std::string& ability, const Greeting& greeting) {
  if (knows_only_the_first_version(greeting)) {
    return fmt::format(
        "the run needs {}, and it announced no abilities (an earlier version, or only a preflight)",
        ability);
  }
  if (has_own_trainer(greeting)) {
    if (is_model(ability)) return "it has a trainer of its own, and this model is built in";
    return fmt::format("its trainer does not offer 'gradient', which {} needs", ability);
  }
  return fmt::format("it does not know {}", ability);
}

}  // namespace

std::string why_unfit(const ClientTable::Client& client, const std::vector<std::string>& abilities,
                      const client::DataShape& shape, protocol::TaskKind kind) {
  const Greeting& greeting = client.greeting;
  const bool evaluates = kind == protocol::TaskKind::kEvaluate;
  if (evaluates && !holds_rows_out(greeting)) {
    return has_own_trainer(greeting) ? "its trainer does not offer 'evaluate'"
                                     : "it holds no rows out";
  }
  if (!client.greeted && greeting.abilities.empty()) return "";  // the store knows its rows alone
  const bool names_models = std::ranges::any_of(greeting.abilities, is_model);
  for (const std::string& ability : abilities) {
    if (is_built_in_model(ability) && !names_models) continue;
    if (!std::ranges::binary_search(greeting.abilities, ability)) {
      return why_it_lacks(ability, greeting);
    }
  }
  if (greeting.input.empty() || shape.input.empty()) return "";
  const bool same = std::ranges::equal(greeting.input, shape.input, [](auto theirs, auto ours) {
    return static_cast<std::int64_t>(theirs) == ours;
  });
  if (!same) return "its rows have another shape";
  if (shape.classes > 0 && static_cast<std::int64_t>(greeting.classes) > shape.classes) {
    return "it has more classes";
  }
  return "";
}

namespace {

bool can_do(const ClientTable::Announced& announced, const ClientNeeds& needs) {
  const ClientTable::Client client{.greeted = true,
                                   .greeting = {.abilities = announced.abilities,
                                                .input = announced.shape.input,
                                                .classes = announced.shape.classes}};
  return why_unfit(client, needs.abilities, needs.shape, needs.kind).empty();
}

}  // namespace

AbleClients count_connected_able(const ClientTable& clients,
                                 const std::vector<std::string>& abilities,
                                 const client::DataShape& shape) {
  AbleClients able;
  for (const auto& [announced, present] : clients.connected_as()) {
    if (!can_do(announced, {abilities, shape, protocol::TaskKind::kTrain})) continue;
    able.connected += present.connected;
    able.free += present.free;
  }
  return able;
}

bool share_clients(const ClientTable& clients, const ClientNeeds& one, const ClientNeeds& other) {
  return std::ranges::any_of(clients.connected_as(), [&](const auto& entry) {
    return can_do(entry.first, one) && can_do(entry.first, other);
  });
}

std::string describe_connected(std::size_t connected, std::size_t able) {
  if (able >= connected) return fmt::format("{} connected", connected);
  return fmt::format("{} connected, {} of them can do this run", connected,
                     able > 0 ? fmt::format("{}", able) : "none");
}

}  // namespace starling::coordinator

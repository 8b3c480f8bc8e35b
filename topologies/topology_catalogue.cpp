// SPDX-License-Identifier: Apache-2.0
#include "topologies/topology_catalogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"

namespace starling::topologies {
namespace {

constexpr std::uint64_t kStepsTried = 64;
constexpr std::uint64_t kPeriodMax = 1'000'000;

Error unlawful(const Blueprint& blueprint, std::uint64_t step, const std::string& why) {
  return wrong_setting("topology-own",
                       fmt::format("the topology '{}' of this program is wrong at step {}: {}",
                                   blueprint.name, step, why));
}

bool same(const Step& one, const Step& other) {
  return one.diagonal == other.diagonal &&
         std::ranges::equal(
             one.entries, other.entries, [](const MixingEntry& a, const MixingEntry& b) {
               return a.receiver == b.receiver && a.sender == b.sender && a.weight == b.weight;
             });
}

Result<void> check_step(const Blueprint& blueprint, Node nodes, std::string_view rule,
                        std::uint64_t number) {
  Step step = blueprint.step(number);
  if (step.diagonal.size() != nodes) {
    return unlawful(blueprint, number,
                    fmt::format("its diagonal has {} entries, and there are {} nodes",
                                step.diagonal.size(), nodes));
  }
  for (const MixingEntry& entry : step.entries) {
    if (entry.receiver < nodes && entry.sender < nodes && entry.receiver != entry.sender) continue;
    return unlawful(blueprint, number,
                    fmt::format("a message from node {} to node {} is none between two of the {} "
                                "nodes",
                                entry.sender, entry.receiver, nodes));
  }
  if (!same(step, blueprint.step(number))) {
    return unlawful(blueprint, number,
                    "it is another one when it is asked for again; draw from the request's rng()");
  }
  const auto matrix = lay(std::move(step), rule);
  if (!matrix) return unlawful(blueprint, number, matrix.error().message());
  if (blueprint.period != 1 && !blueprint.directed && is_directed(*matrix)) {
    return unlawful(blueprint, number, "it is directed, and the blueprint does not say so");
  }
  return {};
}

}  // namespace

void TopologyCatalogue::add(std::string name, Build build) {
  const auto built_in = built_in_topologies();
  const bool is_new = find(name) == nullptr &&
                      std::ranges::find(built_in, std::string_view(name)) == built_in.end();
  STARLING_CHECK(!name.empty() && name.find(':') == name.npos && is_new && build != nullptr);
  topologies_.emplace(std::move(name), std::move(build));
}

const TopologyCatalogue::Build* TopologyCatalogue::find(std::string_view name) const {
  const auto found = topologies_.find(name);
  return found == topologies_.end() ? nullptr : &found->second;
}

std::vector<std::string_view> TopologyCatalogue::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, ignored] : topologies_) names.push_back(name);
  return names;
}

Result<void> check_blueprint(const Blueprint& blueprint, Node nodes, std::string_view rule) {
  if (blueprint.step == nullptr || blueprint.name.empty()) {
    return wrong_setting("topology-own", "a topology of this program has no name or no steps");
  }
  if (blueprint.period > kPeriodMax) {
    return wrong_setting("topology-own",
                         fmt::format("the topology '{}' of this program repeats after {} steps; at "
                                     "most {} can be kept: say 0, for never",
                                     blueprint.name, blueprint.period, kPeriodMax));
  }
  const std::uint64_t tried =
      blueprint.period == 0 ? kStepsTried : std::min(blueprint.period, kStepsTried);
  for (std::uint64_t step = 0; step < tried; ++step) {
    STARLING_TRY(check_step(blueprint, nodes, rule, step));
  }
  return {};
}

}  // namespace starling::topologies

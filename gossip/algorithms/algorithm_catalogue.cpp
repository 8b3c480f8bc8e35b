// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/algorithm_catalogue.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace starling::gossip {

std::span<const std::string_view> algorithm_names(const AlgorithmCatalogue* own) {
  if (own == nullptr) return kAlgorithms;
  return own->names();
}

const topologies::TopologyCatalogue* own_topologies(const AlgorithmCatalogue* own) {
  return own == nullptr ? nullptr : &own->topologies();
}

AlgorithmCatalogue::AlgorithmCatalogue() : names_(kAlgorithms.begin(), kAlgorithms.end()) {}

void AlgorithmCatalogue::add(std::string name, OwnAlgorithm algorithm) {
  const bool is_new = std::ranges::find(names_, name) == names_.end();
  STARLING_CHECK(!name.empty() && is_new);
  const bool pairs = algorithm.traits.pattern == Pattern::kPairs;
  STARLING_CHECK(pairs ? algorithm.make_async != nullptr : algorithm.make != nullptr);
  const auto added = algorithms_.emplace(std::move(name), std::move(algorithm)).first;
  added->second.traits.name = added->first;
  names_.push_back(added->first);
}

const OwnAlgorithm* AlgorithmCatalogue::find(std::string_view name) const {
  const auto found = algorithms_.find(name);
  return found == algorithms_.end() ? nullptr : &found->second;
}

}  // namespace starling::gossip

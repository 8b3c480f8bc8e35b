// SPDX-License-Identifier: Apache-2.0
// What a simulation drew for its links and nodes, as files that network.links, nodes.speeds and
// nodes.presence take back: with them the same settings give the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/sim/network.h"
#include "core/sim/population.h"

namespace starling::sim {

// In a run's directory.
inline constexpr const char* kLinksFile = "links.csv";
inline constexpr const char* kSpeedsFile = "speeds.csv";
inline constexpr const char* kPresenceFile = "presence.csv";

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// In larger networks not all pairs are written: their number grows with the square.
inline constexpr std::uint32_t kAllPairsMax = 512;
Pairs all_pairs(std::uint32_t nodes);

// The access links where their bandwidths differ, and the links of `pairs`, each once in either
// direction. Empty where all links are alike.
std::string links_to_csv(const Network& network, std::uint32_t nodes, const Pairs& pairs);

// Empty where all nodes are equally fast.
std::string speeds_to_csv(const Population& population, std::uint32_t nodes);

// When each node was there until this time, seconds, and when it is next; each has a row at
// least. Empty where all always are.
std::string presence_to_csv(const Population& population, std::uint32_t nodes, double until);

// Of a run. Borrowed for a call of write_values().
struct WrittenValues {
  const Network& network;
  std::uint32_t access_links = 0;  // of the nodes from 0 on
  Pairs pairs;
  const Population& population;
  std::uint32_t nodes = 0;
  double until = 0;  // seconds
};

// The three files, without those that would be empty.
[[nodiscard]] Result<void> write_values(const std::filesystem::path& directory,
                                        const WrittenValues& values);

}  // namespace starling::sim

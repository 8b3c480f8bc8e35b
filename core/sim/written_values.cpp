// SPDX-License-Identifier: Apache-2.0
#include "core/sim/written_values.h"

#include <array>
#include <charconv>

namespace starling::sim {
namespace {

// The shortest text that is read as the same value.
template <class T>
std::string exactly(T value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string link_row(const Network& network, std::uint32_t from, std::uint32_t to) {
  const auto bandwidth = network.link_bandwidth(from, to);
  return std::to_string(from) + "," + std::to_string(to) + "," +
         format_duration(from_seconds(network.latency(from, to))) + "," +
         (bandwidth ? exactly(*bandwidth) + "B/s" : "") + "," + exactly(network.loss(from, to)) +
         "\n";
}

bool are_alike(const Network& network, std::uint32_t a, std::uint32_t b) {
  return network.latency(a, b) == network.latency(b, a) &&
         network.loss(a, b) == network.loss(b, a) &&
         network.link_bandwidth(a, b) == network.link_bandwidth(b, a);
}

}  // namespace

std::string links_to_csv(const Network& network, std::uint32_t nodes,
                         const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) {
  std::string rows;
  for (std::uint32_t node = 0; node < nodes && network.bandwidths_differ(); ++node) {
    rows += std::to_string(node) + ",,," + exactly(network.bandwidth(node)) + "B/s,\n";
  }
  if (network.links_differ()) {
    for (const auto& [a, b] : pairs) {
      rows += link_row(network, a, b);
      if (!are_alike(network, a, b)) rows += link_row(network, b, a);
    }
  }
  return rows.empty() ? "" : "from,to,latency,bandwidth,loss\n" + rows;
}

std::string speeds_to_csv(const Population& population, std::uint32_t nodes) {
  std::string rows;
  bool differ = false;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const double speed = population.speed(node);
    differ = differ || speed != population.speed(0);
    rows += std::to_string(node) + "," + exactly(static_cast<float>(speed)) + "\n";
  }
  return differ ? "node,speed\n" + rows : "";
}

}  // namespace starling::sim

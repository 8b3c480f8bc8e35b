// SPDX-License-Identifier: Apache-2.0
#include "core/sim/written_values.h"

#include <array>
#include <charconv>

#include "core/base/durable_file.h"
#include "core/sim/distribution.h"

namespace starling::sim {
namespace {

// The shortest text that is read as the same value.
template <class T>
std::string exactly(T value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string duration(double seconds) { return format_duration(from_seconds(seconds)); }

// What it says from `time` on, after the two nodes.
std::string values_at(const Network& network, std::uint32_t from, std::uint32_t to, double time) {
  const auto bandwidth = network.link_bandwidth(from, to, time);
  return (network.links_change() ? "," + duration(time) : "") + "," +
         duration(network.latency(from, to, time)) + "," +
         (bandwidth ? write_rate(*bandwidth) : "") + "," + exactly(network.loss(from, to, time)) +
         "\n";
}

// The rows of a link, without the nodes.
std::vector<std::string> link_values(const Network& network, std::uint32_t from, std::uint32_t to) {
  std::vector<std::string> rows{values_at(network, from, to, 0)};
  for (const double time : network.changes(from, to)) {
    rows.push_back(values_at(network, from, to, time));
  }
  return rows;
}

void add_rows(std::string& text, std::uint32_t from, std::uint32_t to,
              const std::vector<std::string>& rows) {
  for (const std::string& row : rows) text += std::to_string(from) + "," + std::to_string(to) + row;
}

Result<void> write_unless_empty(const std::filesystem::path& path, const std::string& text) {
  if (text.empty()) return {};
  return write_durably(path, as_bytes(text));
}

}  // namespace

Pairs all_pairs(std::uint32_t nodes) {
  Pairs pairs;
  for (std::uint32_t a = 0; a < nodes; ++a) {
    for (std::uint32_t b = a + 1; b < nodes; ++b) pairs.emplace_back(a, b);
  }
  return pairs;
}

std::string links_to_csv(const Network& network, std::uint32_t nodes, const Pairs& pairs) {
  std::string rows;
  for (std::uint32_t node = 0; node < nodes && network.bandwidths_differ(); ++node) {
    rows += std::to_string(node) + (network.links_change() ? ",,,," : ",,,") +
            write_rate(network.bandwidth(node)) + ",\n";
  }
  if (network.links_differ()) {
    for (const auto& [a, b] : pairs) {
      const auto there = link_values(network, a, b);
      const auto back = link_values(network, b, a);
      add_rows(rows, a, b, there);
      if (there != back) add_rows(rows, b, a, back);
    }
  }
  if (rows.empty()) return "";
  return std::string("from,to,") + (network.links_change() ? "time," : "") +
         "latency,bandwidth,loss\n" + rows;
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

std::string presence_to_csv(const Population& population, std::uint32_t nodes, double until) {
  if (!population.churns()) return "";
  std::string rows;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    std::vector<double> changes = population.changes(node, until);
    const bool ends_with_leaving = changes.size() % 2 == 0 && changes.back() != kNever;
    if (ends_with_leaving) changes = population.changes(node, changes.back());
    for (std::size_t k = 0; k < changes.size(); k += 2) {
      if (changes[k] == kNever && k > 0) break;
      const bool leaves = k + 1 < changes.size() && changes[k + 1] != kNever;
      rows += std::to_string(node) + "," + (changes[k] == kNever ? "" : duration(changes[k])) +
              "," + (leaves ? duration(changes[k + 1]) : "") + "\n";
    }
  }
  return "node,joins,leaves\n" + rows;
}

Result<void> write_values(const std::filesystem::path& directory, const WrittenValues& values) {
  STARLING_TRY(write_unless_empty(directory / kLinksFile,
                                  links_to_csv(values.network, values.access_links, values.pairs)));
  STARLING_TRY(
      write_unless_empty(directory / kSpeedsFile, speeds_to_csv(values.population, values.nodes)));
  return write_unless_empty(directory / kPresenceFile,
                            presence_to_csv(values.population, values.nodes, values.until));
}

}  // namespace starling::sim

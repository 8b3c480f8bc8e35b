// SPDX-License-Identifier: Apache-2.0
#include "core/sim/link_values.h"

#include <algorithm>
#include <unordered_set>

#include "core/sim/value_file.h"

namespace starling::sim {
namespace {

constexpr double kLossMax = 0.999;  // as of network.loss

Result<LinkValues::Values> read_values(const ValueFile& row) {
  LinkValues::Values values;
  STARLING_ASSIGN(values.latency, row.value("latency", Unit::kDuration));
  STARLING_ASSIGN(values.bandwidth, row.value("bandwidth", Unit::kRate));
  STARLING_ASSIGN(values.loss, row.value("loss", Unit::kFactor));
  if (values.loss && *values.loss > kLossMax) return row.wrong("loss", "is above 0.999");
  return values;
}

}  // namespace

Result<LinkValues> LinkValues::read(const std::filesystem::path& path, std::uint32_t nodes) {
  STARLING_ASSIGN(auto row, ValueFile::open(path, "network.links", {"from", "to"},
                                            {"latency", "bandwidth", "loss"}));
  LinkValues read;
  std::unordered_set<std::uint64_t> said;  // directions with a row of their own
  for (;;) {
    STARLING_ASSIGN(const bool more, row.next());
    if (!more) break;
    STARLING_ASSIGN(const std::uint32_t from, row.node("from", nodes));
    STARLING_ASSIGN(const Values values, read_values(row));
    if (row.text("to").empty()) {
      if (values.latency) return row.wrong("latency", "is of no link: column 'to' is empty");
      if (values.loss) return row.wrong("loss", "is of no link: column 'to' is empty");
      if (!values.bandwidth) {
        return row.wrong("bandwidth", "is no bandwidth, all that a row without 'to' can have");
      }
      if (!read.access_.emplace(from, *values.bandwidth).second) {
        return row.wrong("from", "has a row without 'to' already");
      }
      continue;
    }
    STARLING_ASSIGN(const std::uint32_t to, row.node("to", nodes));
    if (to == from) return row.wrong("to", "is the node that the link comes from");
    if (!said.insert(link_of(from, to)).second) {
      return row.wrong("to", "has a row of this link already");
    }
    read.links_[link_of(from, to)] = values;
    if (!said.contains(link_of(to, from))) read.links_[link_of(to, from)] = values;
    read.has_bandwidths_ = read.has_bandwidths_ || values.bandwidth.has_value();
    read.loss_max_ = std::max(read.loss_max_, values.loss.value_or(0));
  }
  return read;
}

LinkValues::Values LinkValues::link(std::uint32_t from, std::uint32_t to) const {
  if (links_.empty()) return {};
  const auto found = links_.find(link_of(from, to));
  return found == links_.end() ? Values() : found->second;
}

std::optional<double> LinkValues::access(std::uint32_t node) const {
  const auto found = access_.find(node);
  if (found == access_.end()) return std::nullopt;
  return found->second;
}

}  // namespace starling::sim

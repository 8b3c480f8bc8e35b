// SPDX-License-Identifier: Apache-2.0
#include "core/sim/link_values.h"

#include <algorithm>
#include <iterator>

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
                                            {"time", "latency", "bandwidth", "loss"}));
  LinkValues read;
  Rows rows;  // of each direction that has any
  for (;;) {
    STARLING_ASSIGN(const bool more, row.next());
    if (!more) break;
    STARLING_TRY(read.add_row(row, nodes, rows));
  }
  read.take(rows);
  return read;
}

Result<void> LinkValues::add_row(const ValueFile& row, std::uint32_t nodes, Rows& rows) {
  STARLING_ASSIGN(const std::uint32_t from, row.node("from", nodes));
  STARLING_ASSIGN(Values values, read_values(row));
  STARLING_ASSIGN(const auto time, row.value("time", Unit::kDuration));
  if (row.text("to").empty()) {
    if (values.latency) return row.wrong("latency", "is of no link: column 'to' is empty");
    if (values.loss) return row.wrong("loss", "is of no link: column 'to' is empty");
    if (time.value_or(0) > 0) {
      return row.wrong("time",
                       "is of an access link, whose bandwidth does not change: give it to "
                       "the links, rows with 'to'");
    }
    if (!values.bandwidth) {
      return row.wrong("bandwidth", "is no bandwidth, all that a row without 'to' can have");
    }
    if (!access_.emplace(from, *values.bandwidth).second) {
      return row.wrong("from", "has a row without 'to' already");
    }
    return {};
  }
  STARLING_ASSIGN(const std::uint32_t to, row.node("to", nodes));
  if (to == from) return row.wrong("to", "is the node that the link comes from");
  std::vector<Later>& link = rows[link_of(from, to)];
  if (!link.empty()) {
    const Later& before = link.back();
    if (before.time == time.value_or(0)) return row.wrong("to", "has a row of this link already");
    if (before.time > time.value_or(0)) {
      return row.wrong("time", "is before that of the link's row above; write them by their times");
    }
    if (!values.latency) values.latency = before.values.latency;
    if (!values.bandwidth) values.bandwidth = before.values.bandwidth;
    if (!values.loss) values.loss = before.values.loss;
  }
  link.push_back({time.value_or(0), values});
  has_bandwidths_ = has_bandwidths_ || values.bandwidth.has_value();
  loss_max_ = std::max(loss_max_, values.loss.value_or(0));
  return {};
}

void LinkValues::take(const Rows& rows) {
  const auto take_as = [&](std::uint64_t link, const std::vector<Later>& values) {
    const bool from_start = values.front().time == 0;
    links_[link] = from_start ? values.front().values : Values();
    const auto begin = values.begin() + (from_start ? 1 : 0);
    if (begin != values.end()) later_[link].assign(begin, values.end());
  };
  for (const auto& [link, values] : rows) {
    take_as(link, values);
    const std::uint64_t back = (link << 32) | (link >> 32);
    if (!rows.contains(back)) take_as(back, values);
  }
}

LinkValues::Values LinkValues::link(std::uint32_t from, std::uint32_t to, double time) const {
  if (links_.empty()) return {};
  const auto found = links_.find(link_of(from, to));
  if (found == links_.end()) return {};
  if (!later_.empty()) {
    const auto later = later_.find(found->first);
    if (later != later_.end() && later->second.front().time <= time) {
      return std::prev(std::ranges::upper_bound(later->second, time, {}, &Later::time))->values;
    }
  }
  return found->second;
}

std::vector<double> LinkValues::changes(std::uint32_t from, std::uint32_t to) const {
  std::vector<double> times;
  const auto found = later_.find(link_of(from, to));
  if (found == later_.end()) return times;
  for (const Later& later : found->second) times.push_back(later.time);
  return times;
}

std::optional<double> LinkValues::access(std::uint32_t node) const {
  const auto found = access_.find(node);
  if (found == access_.end()) return std::nullopt;
  return found->second;
}

}  // namespace starling::sim

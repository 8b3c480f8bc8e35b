// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/repeated_fault.h"

#include <fmt/format.h>

#include "core/base/counted.h"

namespace starling::gossip {
namespace {

constexpr protocol::Exchange kQuiet = 16;  // who does it now and then is one case

}  // namespace

bool RepeatedFault::is_first(protocol::Member from, protocol::Exchange exchange) {
  Series& series = series_[from];
  series.last = exchange;
  if (++series.count > 1) return false;
  series.since = exchange;
  return true;
}

std::optional<std::string> RepeatedFault::ended(protocol::Member from,
                                                protocol::Exchange exchange) {
  const auto known = series_.find(from);
  if (known == series_.end() || exchange < known->second.last + kQuiet) return std::nullopt;
  std::string text = line(from, known->second);
  series_.erase(known);
  return text;
}

std::vector<std::string> RepeatedFault::finish() {
  std::vector<std::string> lines;
  for (const auto& [member, series] : series_) lines.push_back(line(member, series));
  series_.clear();
  return lines;
}

std::string RepeatedFault::line(protocol::Member member, const Series& series) const {
  return fmt::format("{} of {} from exchange {} to {} {}", counted(series.count, noun_),
                     names_[member], series.since, series.last, what_);
}

}  // namespace starling::gossip

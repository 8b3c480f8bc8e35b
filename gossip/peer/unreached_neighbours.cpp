// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/unreached_neighbours.h"

#include <utility>

namespace starling::gossip {

void UnreachedNeighbours::failed(protocol::Member neighbour, const Error& why, TimePoint now) {
  if (why.code() != "cannot-dial" && why.code() != "shut-out") return;
  Error& known = neighbours_.try_emplace(neighbour, Neighbour{now, why}).first->second.why;
  // The goodbye of a link that ends says more than the TLS alerts of the dials that follow.
  if (known.code() != "shut-out" || why.code() != "shut-out") known = why;
}

std::vector<std::string> UnreachedNeighbours::lines(TimePoint now) {
  std::vector<std::string> lines;
  for (auto& [member, neighbour] : neighbours_) {
    if (now < neighbour.since + kStartMax || std::exchange(neighbour.logged, true)) continue;
    lines.push_back(neighbour.why.message());
  }
  return lines;
}

std::string UnreachedNeighbours::problem_beside(std::string problem, bool hears_nobody) const {
  for (const auto& [member, neighbour] : neighbours_) {
    if (!neighbour.logged) continue;
    const bool is_cause = neighbour.why.code() == "shut-out" && hears_nobody;
    if (is_cause || problem.empty()) problem = neighbour.why.message();
  }
  return problem;
}

}  // namespace starling::gossip

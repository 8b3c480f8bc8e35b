// SPDX-License-Identifier: Apache-2.0
// All-reduce in groups: for each exchange the members are divided at random, and each group takes
// the mean of its own, so that a straggler delays its group only. Means in groups that are drawn
// anew come to the mean of all: of k equal groups among n, one exchange leaves (k - 1) / (n - 1) of
// the expected squared distance from it (Ryabinin et al., Moshpit SGD, NeurIPS 2021, averaging at
// random; their form (k - 1) / n + k / n^2 is of sizes that are drawn too).
#pragma once

#include <cstdint>
#include <vector>

#include "core/protocol/peer_messages.h"

namespace starling::collective {

// How the members are divided: a pure function of these and the exchange, the same everywhere.
struct GroupDraw {
  std::uint64_t seed = 1;     // of the run
  std::uint32_t members = 1;  // n
  std::uint32_t size = 2;     // G, the most in a group

  // ceil(n / G) groups whose sizes differ by one at most, each in ascending order.
  std::vector<std::vector<protocol::Member>> at(protocol::Exchange exchange) const;
  // The one that has `member`.
  std::vector<protocol::Member> group_of(protocol::Member member,
                                         protocol::Exchange exchange) const;
};

}  // namespace starling::collective

// SPDX-License-Identifier: Apache-2.0
// Which neighbours exceed the bound of a robust rule, in a log that a liar cannot flood.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gossip/algorithms/algorithm.h"
#include "gossip/peer/repeated_fault.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

class FarNeighbours {
 public:
  // `rule`: the value of robust.rule. `names`: of all members.
  FarNeighbours(std::string rule, std::vector<std::string> names)
      : rule_(std::move(rule)),
        names_(names),
        far_("model", "were too far from this peer's", std::move(names)) {}

  // What became of the sender's model in this exchange. Returns the line to log, if any: for the
  // first model that is far, and once none was for 16 exchanges.
  std::optional<std::string> note(Member from, Exchange exchange, const Bounded& model);
  // The run is over. Returns a line for each neighbour that was far until now.
  std::vector<std::string> finish() { return far_.finish(); }

 private:
  std::string rule_;
  std::vector<std::string> names_;
  RepeatedFault far_;
};

}  // namespace starling::gossip

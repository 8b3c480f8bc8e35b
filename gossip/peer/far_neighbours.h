// SPDX-License-Identifier: Apache-2.0
// Which neighbours exceed the bound of a robust rule, in a log that a liar cannot flood: a line
// when it begins and one, with the count, when it ends.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gossip/algorithms/algorithm.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

class FarNeighbours {
 public:
  // `rule`: the value of robust.rule. `names`: of all members.
  FarNeighbours(std::string rule, std::vector<std::string> names)
      : rule_(std::move(rule)), names_(std::move(names)) {}

  // What became of the sender's model in this exchange. Returns the line to log, if any: for the
  // first model that is far, and once none was for 16 exchanges.
  std::optional<std::string> note(Member from, Exchange exchange, const Bounded& model);
  // The run is over. Returns a line for each neighbour that was far until now.
  std::vector<std::string> finish();

 private:
  struct Far {
    Exchange since = 0;
    Exchange last = 0;
    std::uint64_t models = 0;
  };
  std::string ended(Member member, const Far& far) const;

  std::string rule_;
  std::vector<std::string> names_;
  std::map<Member, Far> far_;
};

}  // namespace starling::gossip

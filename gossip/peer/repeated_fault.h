// SPDX-License-Identifier: Apache-2.0
// Members that do the same wrong again and again, in a log that they cannot flood: the caller logs
// a line when it begins, and one, with the count, follows when it has ended.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class RepeatedFault {
 public:
  // `noun` and `what`: "model" and "were too far from this peer's". `names`: of all members.
  RepeatedFault(std::string noun, std::string what, std::vector<std::string> names)
      : noun_(std::move(noun)), what_(std::move(what)), names_(std::move(names)) {}

  // Counts one. True for the first since it last ended: the caller logs it.
  bool is_first(protocol::Member from, protocol::Exchange exchange);
  // In this exchange the member did it right. Returns the line to log once 16 exchanges passed
  // since it last did it wrong.
  std::optional<std::string> ended(protocol::Member from, protocol::Exchange exchange);
  // The run is over. Returns a line for each member that did it until now.
  std::vector<std::string> finish();

 private:
  struct Series {
    protocol::Exchange since = 0;
    protocol::Exchange last = 0;
    std::uint64_t count = 0;
  };
  std::string line(protocol::Member member, const Series& series) const;

  std::string noun_;
  std::string what_;
  std::vector<std::string> names_;
  std::map<protocol::Member, Series> series_;
};

}  // namespace starling::gossip

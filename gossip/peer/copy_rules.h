// SPDX-License-Identifier: Apache-2.0
// Who is given this peer's model, and how often: its neighbours in the graph, and members that said
// that they must catch up and whose messages do not show that they are with us; of each a few
// models at first, then one in a while. A member has no other use for a whole model, and copying it
// costs bandwidth and privacy. Neighbours are given more: they get as many numbers with each
// exchange, and one that starts again and again, where exchanges are quick, needs several.
#pragma once

#include <cstdint>
#include <map>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class CopyRules {
 public:
  struct Options {
    // Who is further behind than this, in exchanges, cannot catch up by messages.
    protocol::Exchange lag = 1;
    struct Allowance {
      double at_once;  // models
      Duration every;  // one more
    };
    Allowance neighbours{.at_once = 16, .every = std::chrono::seconds(2)};
    Allowance others{.at_once = 3, .every = std::chrono::seconds(30)};
  };

  explicit CopyRules(const Options& options) : options_(options) {}

  // A member says where it is, while this peer is at exchange `ours`. What it says at a later time
  // takes the place of this.
  void greeted(protocol::Member member, const protocol::PeerHello& hello, protocol::Exchange ours);

  // A message of the member, of this exchange, came over the present link, or the link is lost.
  void heard(protocol::Member member, protocol::Exchange exchange, protocol::Exchange ours);
  void link_lost(protocol::Member member);

  enum class Answer { kGiven, kNotGiven, kTooOften };
  // Whether `member` is given these columns of a model of `size` floats now; counts them if so.
  Answer give(protocol::Member member, bool is_neighbour, const protocol::ColumnsAsk& columns,
              std::uint64_t size, TimePoint now);

 private:
  struct Account {
    bool must_catch_up = false;  // as it said
    bool is_with_us = false;     // as its messages show
    double given = 0;            // models, less those that it may have again
    TimePoint at{};              // then
  };

  Options options_;
  std::map<protocol::Member, Account> accounts_;
};

}  // namespace starling::gossip

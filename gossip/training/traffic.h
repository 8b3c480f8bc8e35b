// SPDX-License-Identifier: Apache-2.0
// What became of the messages of a simulated network.
#pragma once

#include <cstdint>

#include "core/base/archive.h"

namespace starling::gossip {

// A message that comes after the mixing that it was sent for is mixed later: so many exchanges at
// most, among simulated nodes and peers alike.
inline constexpr std::uint64_t kLateExchangesMax = 4;

struct Traffic {
  std::uint64_t messages = 0;    // sent; the rest is arrived, lost or still on its way
  std::uint64_t bytes_sent = 0;  // retransmissions included
  std::uint64_t arrived = 0;
  std::uint64_t late = 0;  // of those that arrived: after their receiver had gone on without them
  std::uint64_t lost = 0;  // in the network, or at a receiver that was away
  // Summed over those that arrived: exchanges (asynchronous: local steps) that their receiver ended
  // between the one that they were sent for and the one that they came to.
  std::uint64_t staleness = 0;

  void archive(Archive& state) {
    for (std::uint64_t* count : {&messages, &bytes_sent, &arrived, &late, &lost, &staleness}) {
      state(*count);
    }
  }
  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes_sent += other.bytes_sent;
    arrived += other.arrived;
    late += other.late;
    lost += other.lost;
    staleness += other.staleness;
    return *this;
  }
};

}  // namespace starling::gossip

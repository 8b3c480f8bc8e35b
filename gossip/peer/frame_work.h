// SPDX-License-Identifier: Apache-2.0
// How much work a frame of a peer is, in small frames: what a member's budget (net::FrameBudget)
// counts. A greeting may be answered with two models again, a piece of a roster is verified, a
// small question is answered with a megabyte, and heartbeats are read one by one and answered with
// as many.
#pragma once

#include "core/net/frame.h"
#include "core/wire/frame_type.h"

namespace starling::gossip {

inline double work_of(const net::Frame& frame) {
  constexpr double kBytesOfASmallFrame = 1024;
  switch (static_cast<wire::FrameType>(frame.type)) {
    case wire::FrameType::kPeerHello:
      return 100;
    case wire::FrameType::kRosterAsk:
    case wire::FrameType::kRosterPart:
    case wire::FrameType::kColumnsAsk:
      return 40;
    case wire::FrameType::kSwim:
      return 1 + static_cast<double>(frame.header.size()) / kBytesOfASmallFrame;
    default:
      return 1;
  }
}

}  // namespace starling::gossip

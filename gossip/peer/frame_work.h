// SPDX-License-Identifier: Apache-2.0
// How much work a frame of a peer is, in small frames: what a member's budget (net::FrameBudget)
// counts. A greeting may be answered with two models again, a piece of a roster is verified, and a
// small question is answered with a megabyte.
#pragma once

#include "core/wire/frame_type.h"

namespace starling::gossip {

inline double work_of(std::uint16_t frame_type) {
  switch (static_cast<wire::FrameType>(frame_type)) {
    case wire::FrameType::kPeerHello:
      return 100;
    case wire::FrameType::kRosterAsk:
    case wire::FrameType::kRosterPart:
    case wire::FrameType::kColumnsAsk:
      return 40;
    default:
      return 1;
  }
}

}  // namespace starling::gossip

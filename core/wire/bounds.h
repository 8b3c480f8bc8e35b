// SPDX-License-Identifier: Apache-2.0
// Which frames each side may send in each state of a session, and how large: asked with a frame's
// head, before any memory is taken for the rest.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "core/wire/frame_type.h"

namespace starling::wire {

struct Bound {
  std::uint32_t header_words_max = 0;  // of 8 bytes
  std::uint32_t payload_bytes_max = 0;
  friend bool operator==(const Bound&, const Bound&) = default;
};

// The largest frame of this type from anyone, with room for fields that later versions add.
Bound bound_of(FrameType type);

// A set of expected frame types.
class FrameTable {
 public:
  FrameTable(std::initializer_list<FrameType> expected);
  // None: not expected here, or not known to this version.
  std::optional<Bound> bound(std::uint16_t type) const;

 private:
  std::array<bool, kFrameTypeMax + 1> expected_{};
};

// What a coordinator takes from a device; `greeted`: its Hello has come. The tables live as long as
// the program.
const FrameTable& from_client(bool greeted);
// What a device takes from its coordinator; `greeted`: the Welcome has come. The plan of an open
// round may follow at once, so the state changes with the frame, before the next head is read.
const FrameTable& from_coordinator(bool greeted);
// What a peer takes from a peer; `greeted`: its PeerHello has come. A later PeerHello says that the
// roster or the exchange has changed.
const FrameTable& from_peer(bool greeted);
// What a coordinator takes from an operator, and what it answers. Operators do not greet.
const FrameTable& from_operator();
const FrameTable& to_operator();

}  // namespace starling::wire

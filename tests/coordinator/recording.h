// SPDX-License-Identifier: Apache-2.0
// A recorded federation: what happened to a coordinator, in order, with every frame that it got and
// sent. As text, one step a line, so that a file of it can be read and compared:
//   admit CLIENT | submit | open SESSION CLIENT | close SESSION | advance MILLISECONDS | drain
//   client SESSION HEX       a frame to the coordinator
//   coordinator SESSION HEX  a frame from it
//   default KEY VALUE        of a setting, in the client that was recorded
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/settings.h"

namespace starling::testing {

struct RecordedStep {
  std::string kind;
  std::uint64_t number = 0;  // a session, or milliseconds
  std::string client;
  Bytes frame;
};

struct Recording {
  Settings defaults;
  std::vector<RecordedStep> steps;

  std::string to_text() const;
  static Recording parse(std::string_view text);
};

// Records today's clients with today's coordinator: a transfer of a model and of an update that
// break off and go on, a failed training, a failed disk, an abandoned attempt, and two rounds.
Recording record_fedavg();

// --- as the client of recorded/client_v1.capnp reads it ------------------------------------------
// The frame's type and every field that this client knows, but a plan's settings; its payload.
std::string read_by_recorded_client(ByteView frame);
// Of a RoundPlan; else empty.
Settings settings_read_by_recorded_client(ByteView frame);

}  // namespace starling::testing

// SPDX-License-Identifier: Apache-2.0
// What a peer's reports count: messages over all its sessions, and the loss of the steps since the
// report before.
#pragma once

#include <cstdint>
#include <string>

#include "core/protocol/peer_messages.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

class ReportCounts {
 public:
  void message_arrived(const std::string& run_id);
  // Whether the latest message was of this run.
  bool has_heard(const std::string& run_id) const { return arrived_in_ == run_id; }
  // `progress`: of the session at work, here and below.
  void session_ended(const TrainingProgress& progress);
  void reported(const TrainingProgress& progress);

  // Fills in the counts. Null: there is no session.
  void add_to(protocol::PeerReport& report, const TrainingProgress* progress) const;

 private:
  std::uint64_t arrived_ = 0;
  std::string arrived_in_;  // the run of the latest message
  Traffic ended_;           // of sessions that have ended
  double reported_loss_ = 0;
  std::uint64_t reported_steps_ = 0;
};

}  // namespace starling::gossip

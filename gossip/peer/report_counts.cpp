// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/report_counts.h"

namespace starling::gossip {

void ReportCounts::message_arrived(const std::string& run_id) {
  ++arrived_;
  arrived_in_ = run_id;
}

// The next session counts its losses from 0.
void ReportCounts::session_ended(const TrainingProgress& progress) {
  ended_ += progress.traffic;
  reported_loss_ = 0;
  reported_steps_ = 0;
}

void ReportCounts::reported(const TrainingProgress& progress) {
  reported_loss_ = progress.loss_sum;
  reported_steps_ = progress.loss_steps;
}

void ReportCounts::add_to(protocol::PeerReport& report, const TrainingProgress* progress) const {
  Traffic traffic = ended_;
  if (progress != nullptr) {
    traffic += progress->traffic;
    report.loss_steps = progress->loss_steps - reported_steps_;
    if (report.loss_steps > 0) {
      report.loss = (progress->loss_sum - reported_loss_) / static_cast<double>(report.loss_steps);
    }
  }
  report.arrived = arrived_;
  report.late = traffic.late;
  report.lost = traffic.lost;
  report.staleness = traffic.staleness;
}

}  // namespace starling::gossip

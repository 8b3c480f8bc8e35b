// SPDX-License-Identifier: Apache-2.0
// The checkpoint that was asked for last, until it is on the disk: after the end of a run no later
// one takes its place, so that one that could not be written is written again.
#pragma once

#include <optional>
#include <string>

#include "core/base/clock.h"
#include "gossip/peer/peer_events.h"

namespace starling::gossip {

class PendingCheckpoint {
 public:
  explicit PendingCheckpoint(Duration retry_every) : retry_every_(retry_every) {}

  // Takes the place of the one before. Returns what to ask for: the model too where it was wanted
  // of this run before, as the model of a run that is over is owed until it is written.
  peer::KeepCheckpoint keep(peer::KeepCheckpoint what);
  // Returns the line to log, if any: once for each kind of error, whichever of the files it is of,
  // as a disk that stays full would fill the log, and once when the checkpoint is there. `is_last`:
  // it is not written again.
  std::optional<peer::Say> answered(const peer::CheckpointKept& answer, TimePoint now,
                                    bool is_last);
  // When one that failed is to be written again; none: none has failed.
  std::optional<TimePoint> retry_at() const { return retry_at_; }
  // Requires: retry_at().
  peer::KeepCheckpoint retry();
  // Why the last checkpoint is not kept; empty: it is, or its first answer has not come.
  const std::string& problem() const { return problem_; }

 private:
  const Duration retry_every_;
  std::optional<peer::KeepCheckpoint> pending_;
  std::optional<TimePoint> retry_at_;
  std::string problem_;
  std::string code_;  // of that error
};

}  // namespace starling::gossip

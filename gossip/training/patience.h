// SPDX-License-Identifier: Apache-2.0
// How long a node waits for what may never come: as TCP times its retransmissions (RFC 6298), by
// the mean and deviation of the waits that it has seen.
#pragma once

#include "core/base/archive.h"

namespace starling::gossip {

// Times are virtual seconds.
class Patience {
 public:
  // Of a node whose own work took `work`: at most `deadline`, and at least `least`, or twice that
  // after nothing came, and so on. Who has seen nothing yet gives the others ten times its own
  // work.
  double seconds(double work, double deadline, double least = 0) const;

  // What came was waited for this long.
  void learn(double waited);
  // Nothing came, and nobody knows whether it was lost or is slow: twice as long the next time.
  void give_up();
  void archive(Archive& state);

 private:
  bool learned_ = false;
  double mean_ = 0;
  double deviation_ = 0;
  double backoff_ = 1;
};

}  // namespace starling::gossip

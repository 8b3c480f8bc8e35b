// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/promise_memory.h"

namespace starling::gossip {

bool PromiseMemory::session_begins(const std::string& run_id, protocol::Epoch epoch,
                                   const protocol::Progress& at) {
  if (reached_ && reached_->run_id == run_id && at < reached_->at) forgot_run_ = run_id;
  const bool same_epoch = std::exchange(epoch_, epoch) == epoch;
  return forgot_run_ != run_id && !same_epoch;
}

void PromiseMemory::session_ended(const std::string& run_id, const protocol::Progress& at,
                                  bool remembers) {
  if (remembers && forgot_run_ == run_id) forgot_run_.reset();
  reached_ = Reached{run_id, at};
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// Whether a session knows everything that this peer promised the other members of its run (see
// ProtocolStart::forgot). It does not where an earlier process took part in the run, where the
// session before was of the same epoch, or where that one ended further on than this one begins, as
// it failed or was copying a model.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class PromiseMemory {
 public:
  // An earlier process took part in this run.
  void run_had_begun(std::string run_id) { forgot_run_ = std::move(run_id); }
  // A session begins. Returns false where it does not know what was promised.
  bool session_begins(const std::string& run_id, protocol::Epoch epoch,
                      const protocol::Progress& at);
  // `remembers`: its protocol knows by now what was promised.
  void session_ended(const std::string& run_id, const protocol::Progress& at, bool remembers);

 private:
  struct Reached {
    std::string run_id;
    protocol::Progress at;
  };
  std::optional<std::string> forgot_run_;
  std::optional<protocol::Epoch> epoch_;  // of the latest session
  std::optional<Reached> reached_;        // by the latest that ended
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// The processes of one trainer that the clients of a simulation share: one a thread, started when
// it is first needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/scratch_directory.h"
#include "core/client/trainer_host.h"

namespace starling::client {

class TrainerWorkers {
 public:
  // `client`: named in their first description. A failed start is repeated at once. `log`
  // must outlive it.
  [[nodiscard]] static Result<TrainerWorkers> make(const TrainerOptions& options,
                                                   const std::string& client, unsigned workers,
                                                   Log& log);

  std::size_t size() const { return hosts_.size(); }
  TrainerHost& operator[](std::size_t worker) const { return *hosts_[worker]; }

 private:
  explicit TrainerWorkers(ScratchDirectory directory) : directory_(std::move(directory)) {}

  ScratchDirectory directory_;  // of all processes, which end before it is removed
  std::vector<std::unique_ptr<TrainerHost>> hosts_;
};

}  // namespace starling::client

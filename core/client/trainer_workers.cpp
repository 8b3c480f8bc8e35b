// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_workers.h"

namespace starling::client {

Result<TrainerWorkers> TrainerWorkers::make(const TrainerOptions& options,
                                            const std::string& client, unsigned workers, Log& log) {
  STARLING_ASSIGN(ScratchDirectory directory, ScratchDirectory::make());
  TrainerWorkers made(std::move(directory));
  for (unsigned worker = 0; worker < workers; ++worker) {
    made.hosts_.push_back(
        std::make_unique<TrainerHost>(TrainerHost::Options{.trainer = options,
                                                           .directory = made.directory_.path(),
                                                           .client = client,
                                                           .pause_min = Duration::zero(),
                                                           .pause_max = Duration::zero()},
                                      log));
  }
  return made;
}

}  // namespace starling::client

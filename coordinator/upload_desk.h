// SPDX-License-Identifier: Apache-2.0
// The uploads of the open round by task: being received, then being summed. Loop thread only.
#pragma once

#include <map>
#include <memory>

#include "core/base/ids.h"
#include "core/base/shared_bytes.h"
#include "core/store/spool.h"

namespace starling::coordinator {

class UploadDesk {
 public:
  explicit UploadDesk(store::UploadSpool::Options options) : spool_(std::move(options)) {}

  // Room for an update, or for the rest of one that was interrupted; returns what is there
  // already. The errors of UploadSpool::begin.
  [[nodiscard]] Result<std::uint64_t> open(TaskId task, std::uint64_t bytes);
  // A failure shows in begin_sum. A whole update that has an owner is kept as it is; all else is
  // copied into the spool.
  void write(TaskId task, std::uint64_t offset, const SharedBytes& bytes);
  // Of one that is being received; what is being summed stays until end_sum.
  void drop(TaskId task) { receiving_.erase(task); }

  // The whole update, valid until end_sum; "upload-incomplete".
  [[nodiscard]] Result<SharedBytes> begin_sum(TaskId task);
  void end_sum(TaskId task) { summing_.erase(task); }

 private:
  struct Received {
    std::unique_ptr<store::Upload> upload;  // null where the update is kept as it came
    SharedBytes whole;
  };

  store::UploadSpool spool_;
  std::map<TaskId, Received> receiving_;
  std::map<TaskId, Received> summing_;
};

}  // namespace starling::coordinator

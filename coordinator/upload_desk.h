// SPDX-License-Identifier: Apache-2.0
// The uploads of the open round by task: being received, then being summed. Loop thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "core/base/ids.h"
#include "core/base/shared_bytes.h"
#include "core/store/spool.h"

namespace starling::coordinator {

class UploadDesk {
 public:
  explicit UploadDesk(store::UploadSpool::Options options) : spool_(std::move(options)) {}

  // Room for an update, or for the rest of one that was interrupted; returns what is there
  // already. The errors of UploadSpool::begin; one that has to wait (kOverloaded) gets the room
  // that others leave, in the order of asking, and hears of it when it asks again.
  [[nodiscard]] Result<std::uint64_t> open(TaskId task, std::uint64_t bytes);
  // A failure shows in begin_sum. A whole update that has an owner is kept as it is; all else is
  // copied into the spool.
  void write(TaskId task, std::uint64_t offset, const SharedBytes& bytes);
  // Of one that is being received or waits; what is being summed stays until end_sum.
  void drop(TaskId task);

  // The whole update, valid until end_sum; "upload-incomplete", or what kept it from being stored:
  // "disk-full", "io-error".
  [[nodiscard]] Result<SharedBytes> begin_sum(TaskId task);
  void end_sum(TaskId task);

  // How many have room here: that are being received or summed.
  std::size_t size() const { return receiving_.size() + summing_.size(); }
  // Of the buffers, idle ones included.
  std::uint64_t memory_bytes() const { return spool_.memory_bytes(); }

 private:
  struct Received {
    std::unique_ptr<store::Upload> upload;  // null where the update is kept as it came
    SharedBytes whole;
  };
  struct Waiting {
    TaskId task;
    std::uint64_t bytes;
  };

  std::optional<Error> serve_waiting();
  void give_up(TaskId task);
  void room_freed();

  store::UploadSpool spool_;
  std::map<TaskId, Received> receiving_;
  std::map<TaskId, Received> summing_;
  std::deque<Waiting> waiting_;
  std::map<TaskId, Error> failed_;  // until they are asked for or dropped
};

}  // namespace starling::coordinator

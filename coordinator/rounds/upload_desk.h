// SPDX-License-Identifier: Apache-2.0
// The uploads of open phases by task: being received, being summed, and kept until their phase has
// ended, for a process that is killed loses its sums. Loop thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "coordinator/machine/round_machine.h"
#include "core/base/ids.h"
#include "core/base/shared_bytes.h"
#include "core/store/spool.h"

namespace starling::coordinator {

class UploadDesk {
 public:
  // The disk must outlive the desk.
  UploadDesk(Disk& disk, store::UploadSpool::Options options) : spool_(disk, std::move(options)) {}

  // The run's phase needs so many updates of `bytes` each at once: none of them gets room before
  // there is room for all, so that two such phases do not share it out and wait for each other.
  void expect_together(RunId run, std::uint64_t updates, std::uint64_t bytes);

  // Room for an update, or for the rest of one that was interrupted; returns what is there
  // already, perhaps all of it. The errors of UploadSpool::begin; one that has to wait
  // (kOverloaded) gets the room that others leave, in the order of asking, and hears of it when it
  // asks again. While many wait and ask, one of them in turn looks for room on behalf of all, and
  // takes that of one upload without progress where there is none.
  [[nodiscard]] Result<std::uint64_t> open(const store::UploadKey& key, TimePoint now);
  // The uploads that lost their room since the last call. What the spool kept of them is still
  // there when they are opened again.
  std::vector<TaskId> take_stalled() { return std::exchange(stalled_, {}); }
  // A failure shows in begin_sum. A whole update that has an owner is kept as it is; all else is
  // copied into the spool.
  void write(TaskId task, std::uint64_t offset, const SharedBytes& bytes, TimePoint now);
  // Of one that is being received, waits or is kept; what is being summed stays until end_sum.
  void drop(TaskId task);

  // The whole update, valid until end_sum; "upload-incomplete", or what kept it from being stored:
  // "disk-full", "io-error".
  [[nodiscard]] Result<update::Payload> begin_sum(TaskId task);
  // Whether an earlier process received a part of what is being summed.
  bool is_resumed(TaskId task) const;
  // `counted`: it is kept until its phase ends.
  void end_sum(TaskId task, bool counted);

  // The run's model is durable, or its phase was abandoned: nothing of it is needed again.
  void end_phase(RunId run);
  // At the start: no other task is of an open phase.
  void forget_all_but(const std::set<TaskId>& tasks) { spool_.forget_all_but(tasks); }

  // How many have room here: that are being received or summed.
  std::size_t size() const { return receiving_.size() + summing_.size(); }
  // Of the buffers, idle ones included.
  std::uint64_t memory_bytes() const { return spool_.memory_bytes(); }

 private:
  struct Received {
    store::UploadKey key;
    std::unique_ptr<store::Upload> upload;  // null where the update is kept as it came
    SharedBytes whole;
    std::optional<TimePoint> progress_at = {};  // of the last progress; none: not asked for yet
    std::uint64_t progress_bytes = 0;           // that were there then
  };
  using Uploads = std::map<TaskId, Received>;
  struct Together {
    std::uint64_t updates;
    std::uint64_t bytes;
  };

  static void discard(Received& received);
  static std::uint64_t start(Received& received, TimePoint now);
  void serve_waiting();
  bool take_room_of_stalled(TimePoint now);
  std::optional<RunId> promised_to(RunId run) const;
  Result<std::unique_ptr<store::Upload>> begin_first(const store::UploadKey& key,
                                                     const Together& together);
  void give_up(TaskId task);
  void room_freed();

  store::UploadSpool spool_;
  Uploads receiving_;
  Uploads summing_;
  std::deque<store::UploadKey> waiting_;
  std::uint64_t looks_ = 0;                          // for room, for those that wait
  std::map<store::UploadKey, std::uint64_t> asked_;  // those that wait: after which look, last
  std::optional<Error> refusal_;                     // of the first that waits
  std::map<RunId, Together> together_;
  std::vector<TaskId> stalled_;
  std::map<TaskId, Error> failed_;  // until they are asked for or dropped
};

}  // namespace starling::coordinator

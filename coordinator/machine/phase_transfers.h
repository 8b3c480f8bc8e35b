// SPDX-License-Identifier: Apache-2.0
// The transfers of an open phase: the model and its inputs down, under the credit that each client
// gives, and updates up, each of which waits for room in the spool and is given to the sum when it
// is whole.
#pragma once

#include <map>
#include <optional>

#include "coordinator/machine/round_machine.h"
#include "coordinator/machine/run_scope.h"
#include "core/base/deadlines.h"

namespace starling::coordinator {

class PhaseTransfers {
 public:
  // `tasks` are those of the phase. Both references must outlive the transfers.
  PhaseTransfers(const RunScope& run, RoundMachine& tasks, const update::Schema& schema,
                 bool is_logged);

  // Of a task that was issued to the session's client, and only then.
  void receive(SessionId session, const protocol::ModelRequest& request);
  void receive(SessionId session, const protocol::Credit& credit);
  void receive(SessionId session, const protocol::Chunk& chunk, const SharedBytes& payload);
  // The client offers an update, of which this head counts. Replaces an earlier offer.
  // Requires: the task is kAsked or kOffered.
  void offered(update::ContributionHead head);
  // Fails where there will never be room for the update: the error ends its task.
  Result<void> handle(const UploadOpened& event);
  void handle(const UploadStalled& event);
  // There was no room for the update. If it gets none in time, that is why its task fails.
  void no_room(TaskId task, const Error& error);
  // Gives updates that are whole to the sum, as far as they are wanted. To be called when a task
  // that was being summed has failed.
  void sum_next();

  // The client's connection is gone; it may request, and offer, again.
  void interrupt(TaskId task);
  // The task has failed.
  void drop(TaskId task);
  std::optional<TimePoint> next_deadline() const { return retries_.next(); }
  void retry_uploads();
  // Fails the tasks that missed the deadline because the coordinator had no room. Requires: the
  // phase ends.
  void fail_late();
  void drop_all();

 private:
  struct Download {
    protocol::TransferSender sender;
    std::uint16_t input;
  };
  struct Upload {
    update::ContributionHead head;
    std::optional<protocol::TransferReceiver> receiver;  // once there is room for it
  };

  void pump(SessionId session, TaskId task);
  void record_traffic();
  void open(const update::ContributionHead& head);
  void received(TaskId task);

  const RunScope run_;
  RoundMachine& tasks_;
  const update::Schema& schema_;
  std::uint64_t traffic_recorded_;  // bytes out
  std::map<TaskId, Download> downloads_;
  std::map<TaskId, Upload> uploads_;
  Deadlines<TaskId> retries_;         // of uploads for which there was no room
  std::map<TaskId, Error> refusals_;  // why, until there is some
  std::map<TaskId, Error> stalled_;   // uploads that lost their room, also where they got another
  bool says_disk_full_;               // not yet, and the phase is logged
};

}  // namespace starling::coordinator

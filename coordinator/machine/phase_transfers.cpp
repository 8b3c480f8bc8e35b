// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/phase_transfers.h"

#include <fmt/format.h>

#include <algorithm>

namespace starling::coordinator {
namespace {

// A phase's traffic is written to the store in so many steps where there are more clients.
constexpr std::size_t kTrafficSteps = 32;

}  // namespace

PhaseTransfers::PhaseTransfers(const RunScope& run, RoundMachine& tasks,
                               const update::Schema& schema, bool is_logged)
    : run_(run),
      tasks_(tasks),
      schema_(schema),
      traffic_recorded_(tasks.bytes_out()),
      says_disk_full_(is_logged) {}

// --- inputs, down -------------------------------------------------------------------------------

void PhaseTransfers::receive(SessionId session, const protocol::ModelRequest& request) {
  const RunPosition& base = run_.start.at;
  if (request.input > base.inputs.size()) {
    return run_.clients.refuse(session, "bad-message", "the task has no such input");
  }
  const SharedBytes bytes = request.input == 0
                                ? SharedBytes(base.model, as_bytes(base.model->values()))
                                : base.inputs[request.input - 1].bytes;
  auto [download, added] = downloads_.insert_or_assign(
      request.task, Download{protocol::TransferSender(bytes, run_.options.transfer.chunk_bytes_max),
                             request.input});
  if (const auto started = download->second.sender.start(request.offset, request.limit); !started) {
    return run_.clients.refuse(session, started.error().code(), started.error().message());
  }
  pump(session, request.task);
}

void PhaseTransfers::receive(SessionId session, const protocol::Credit& credit) {
  const auto download = downloads_.find(credit.task);
  if (download == downloads_.end()) return;
  download->second.sender.extend(credit.limit);
  pump(session, credit.task);
}

void PhaseTransfers::pump(SessionId session, TaskId task) {
  const auto download = downloads_.find(task);
  while (auto piece = download->second.sender.next()) {
    tasks_.count_bytes(task, 0, piece->bytes.size());
    run_.turn.send(
        session,
        protocol::Chunk{.task = task, .offset = piece->offset, .input = download->second.input},
        std::move(piece->bytes));
  }
  if (!download->second.sender.done()) return;
  downloads_.erase(download);
  record_traffic();
}

// At most once for each model that went out, not for each request of a client that asks for its end
// again.
void PhaseTransfers::record_traffic() {
  const std::uint64_t model_bytes = run_.start.at.model->size() * sizeof(float);
  const std::size_t models = std::max<std::size_t>(1, tasks_.asked() / kTrafficSteps);
  if (tasks_.bytes_out() < traffic_recorded_ + models * model_bytes) return;
  traffic_recorded_ = tasks_.bytes_out();
  const RoundMachine::Options& phase = tasks_.options();
  run_.turn.act(RecordTraffic{phase.run, phase.kind, phase.round, phase.attempt, tasks_.bytes_in(),
                              tasks_.bytes_out()});
}

// --- updates, up --------------------------------------------------------------------------------

void PhaseTransfers::offered(update::ContributionHead head) {
  const TaskId task = head.task;
  tasks_.offered(task, head.weight);
  retries_.clear(task);
  Upload& upload = uploads_[task] = Upload{.head = std::move(head), .receiver = {}};
  if (upload.head.payload_bytes > 0) return open(upload.head);
  received(task);  // scalars alone
}

void PhaseTransfers::open(const update::ContributionHead& head) {
  run_.turn.act(OpenUpload{run_.start.id, head.task, head.payload_bytes, head.payload_checksum});
}

Result<void> PhaseTransfers::handle(const UploadOpened& event) {
  const auto upload = uploads_.find(event.task);
  if (upload == uploads_.end()) return {};
  if (!event.received) {
    if (event.received.error().kind() != ErrorKind::kOverloaded) return event.received.error();
    no_room(event.task, event.received.error());
    retries_.set(event.task, run_.turn.now + run_.options.upload_retry);  // no room, no credit
    return {};
  }
  retries_.clear(event.task);
  refusals_.erase(event.task);
  protocol::TransferReceiver& receiver = upload->second.receiver.emplace(
      upload->second.head.payload_bytes, run_.options.transfer.window_bytes);
  if (*event.received > 0) receiver.resume(*event.received);
  if (receiver.done()) {  // before a restart: no chunk comes any more
    received(event.task);
    return {};
  }
  run_.clients.send_to(
      tasks_.find(event.task)->client,
      protocol::UpdateAccept{
          .task = event.task, .offset = *event.received, .limit = receiver.tell_limit()});
  return {};
}

void PhaseTransfers::receive(SessionId session, const protocol::Chunk& chunk,
                             const SharedBytes& payload) {
  if (chunk.input != 0) {
    return run_.clients.refuse(session, "bad-message", "a piece of an update names an input");
  }
  if (tasks_.find(chunk.task)->state != RoundMachine::State::kOffered) return;  // settled
  const auto upload = uploads_.find(chunk.task);
  if (upload == uploads_.end() || !upload->second.receiver) return;
  protocol::TransferReceiver& receiver = *upload->second.receiver;
  const auto taken = receiver.take(chunk.offset, payload.size());
  if (!taken) return run_.clients.refuse(session, taken.error().code(), taken.error().message());
  if (!*taken) return;
  tasks_.count_bytes(chunk.task, payload.size(), 0);
  run_.turn.act(WriteUpload{chunk.task, chunk.offset, payload});
  if (const auto limit = receiver.credit_due()) {
    run_.turn.send(session, protocol::Credit{.task = chunk.task, .limit = *limit});
  }
  if (receiver.done()) received(chunk.task);
}

void PhaseTransfers::received(TaskId task) {
  tasks_.received(task);
  sum_next();
}

void PhaseTransfers::sum_next() {
  while (const auto task = tasks_.next_to_sum()) {
    const auto upload = uploads_.find(*task);
    run_.turn.act(SumUpload{run_.start.id, std::move(upload->second.head), schema_});
    uploads_.erase(upload);
    retries_.clear(*task);
  }
}

// A full disk is said once a phase, as far as the phase is logged: each upload waits for the same.
void PhaseTransfers::no_room(TaskId task, const Error& error) {
  refusals_.insert_or_assign(task, error);
  if (error.code() != "disk-full" || !std::exchange(says_disk_full_, false)) return;
  run_.say(fmt::format("{} updates wait for the disk: {}", run_.label(tasks_.options().round),
                       error.message()));
}

// The new connection, on which the update is offered again, has none of its pieces under way.
void PhaseTransfers::handle(const UploadStalled& event) {
  if (uploads_.erase(event.task) == 0) return;
  retries_.clear(event.task);
  const std::string name = tasks_.find(event.task)->client;
  const Error error = timed_out(
      std::string(kUploadStalled),
      fmt::format("its upload brought less than {} in {} while other uploads waited for its room",
                  format_byte_count(kProgressBytes), format_duration(kProgressTime)));
  if (stalled_.insert_or_assign(event.task, error).second) {
    run_.say(fmt::format("{} {}: {}; it may offer the update again",
                         run_.label(tasks_.options().round), name, error.message()));
  }
  tasks_.interrupted(event.task);
  const ClientTable::Client* client = run_.clients.find(name);
  if (client == nullptr || !client->session) return;
  run_.clients.refuse(*client->session, error.code(), error.message() + ": offer the update again");
}

void PhaseTransfers::retry_uploads() {
  for (const TaskId task : retries_.take_due(run_.turn.now)) open(uploads_.at(task).head);
}

// --- ending -------------------------------------------------------------------------------------

void PhaseTransfers::interrupt(TaskId task) {
  downloads_.erase(task);
  tasks_.interrupted(task);
}

void PhaseTransfers::drop(TaskId task) {
  uploads_.erase(task);
  retries_.clear(task);
  downloads_.erase(task);
  run_.turn.act(DropUpload{task});
}

// Clients did not miss a deadline that the coordinator kept them from.
void PhaseTransfers::fail_late() {
  if (tasks_.counted() >= tasks_.options().updates_wanted) return;
  for (const auto& [task, error] : stalled_) tasks_.failed(task, error);
  for (const auto& [task, refusal] : refusals_) {
    tasks_.failed(task,
                  overloaded(std::string(kNoRoom),
                             "the coordinator had no room for it in time: " + refusal.message()));
  }
}

void PhaseTransfers::drop_all() {
  for (const auto& [task, upload] : uploads_) run_.turn.act(DropUpload{task});
  uploads_.clear();
  retries_ = {};
  downloads_.clear();
}

}  // namespace starling::coordinator

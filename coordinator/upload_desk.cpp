// SPDX-License-Identifier: Apache-2.0
#include "coordinator/upload_desk.h"

#include <algorithm>

namespace starling::coordinator {

Result<std::uint64_t> UploadDesk::open(TaskId task, std::uint64_t bytes) {
  const auto found = receiving_.find(task);
  if (found != receiving_.end()) {
    const auto& [upload, whole] = found->second;
    if (!upload && whole.size() == bytes) return bytes;
    if (upload && upload->bytes() == bytes) return upload->received();
  }
  give_up(task);
  // Behind those that wait already, so that none of them waits for ever.
  waiting_.push_back({task, bytes});
  const std::optional<Error> refusal = serve_waiting();
  const auto served = receiving_.find(task);
  if (served != receiving_.end()) return 0;
  if (const auto error = failed_.extract(task)) return error.mapped();
  return *refusal;
}

// Gives room to those that wait, in the order in which they asked for it. Returns why the first of
// them has to wait on.
std::optional<Error> UploadDesk::serve_waiting() {
  while (!waiting_.empty()) {
    const auto [task, bytes] = waiting_.front();
    auto upload = spool_.begin(bytes);
    if (!upload && upload.error().kind() == ErrorKind::kOverloaded) return upload.error();
    waiting_.pop_front();
    if (upload) {
      receiving_[task] = {std::move(*upload), {}};
    } else {
      failed_.insert_or_assign(task, upload.error());
    }
  }
  return std::nullopt;
}

void UploadDesk::write(TaskId task, std::uint64_t offset, const SharedBytes& bytes) {
  const auto found = receiving_.find(task);
  if (found == receiving_.end() || !found->second.upload) return;
  store::Upload& upload = *found->second.upload;
  if (offset == 0 && bytes.owner() && bytes.size() == upload.bytes()) {
    found->second = {nullptr, bytes};
    return;
  }
  const auto written = upload.write(offset, bytes.view());
  if (written) return;
  receiving_.erase(found);
  failed_.insert_or_assign(task, written.error());
}

void UploadDesk::give_up(TaskId task) {
  receiving_.erase(task);
  failed_.erase(task);
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.task == task; });
}

void UploadDesk::drop(TaskId task) {
  give_up(task);
  room_freed();
}

Result<SharedBytes> UploadDesk::begin_sum(TaskId task) {
  auto found = receiving_.extract(task);
  if (const auto error = failed_.extract(task)) return error.mapped();
  if (found.empty() || (found.mapped().upload && !found.mapped().upload->complete())) {
    return retry("upload-incomplete", "the update was not received whole");
  }
  const auto& [upload, whole] = found.mapped();
  SharedBytes payload = whole;
  if (upload) payload = SharedBytes(nullptr, upload->view());
  if (upload && upload->on_disk()) payload = SharedBytes::mapped(upload->view());
  summing_.insert_or_assign(task, std::move(found.mapped()));
  return payload;
}

void UploadDesk::end_sum(TaskId task) {
  summing_.erase(task);
  room_freed();
}

// Between rounds no buffer is kept: a coordinator that waits for devices holds little memory.
void UploadDesk::room_freed() {
  serve_waiting();
  if (receiving_.empty() && summing_.empty()) spool_.release_idle();
}

}  // namespace starling::coordinator

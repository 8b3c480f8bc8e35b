// SPDX-License-Identifier: Apache-2.0
#include "coordinator/upload_desk.h"

namespace starling::coordinator {

Result<std::uint64_t> UploadDesk::open(TaskId task, std::uint64_t bytes) {
  const auto found = receiving_.find(task);
  if (found != receiving_.end() && found->second->bytes() == bytes) {
    return found->second->received();
  }
  drop(task);
  STARLING_ASSIGN(auto upload, spool_.begin(bytes));
  receiving_[task] = std::move(upload);
  return 0;
}

void UploadDesk::write(TaskId task, std::uint64_t offset, ByteView bytes) {
  const auto found = receiving_.find(task);
  if (found == receiving_.end()) return;
  if (!found->second->write(offset, bytes)) receiving_.erase(found);
}

Result<SharedBytes> UploadDesk::begin_sum(TaskId task) {
  auto upload = receiving_.extract(task);
  if (upload.empty() || !upload.mapped()->complete()) {
    return retry("upload-incomplete", "the update was not received whole");
  }
  const ByteView view = upload.mapped()->view();
  summing_.insert_or_assign(task, std::move(upload.mapped()));
  return SharedBytes(nullptr, view);
}

}  // namespace starling::coordinator

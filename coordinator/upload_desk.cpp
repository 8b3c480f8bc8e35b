// SPDX-License-Identifier: Apache-2.0
#include "coordinator/upload_desk.h"

namespace starling::coordinator {

Result<std::uint64_t> UploadDesk::open(TaskId task, std::uint64_t bytes) {
  const auto found = receiving_.find(task);
  if (found != receiving_.end()) {
    const auto& [upload, whole] = found->second;
    if (!upload && whole.size() == bytes) return bytes;
    if (upload && upload->bytes() == bytes) return upload->received();
  }
  drop(task);
  STARLING_ASSIGN(auto upload, spool_.begin(bytes));
  receiving_[task] = {std::move(upload), {}};
  return 0;
}

void UploadDesk::write(TaskId task, std::uint64_t offset, const SharedBytes& bytes) {
  const auto found = receiving_.find(task);
  if (found == receiving_.end() || !found->second.upload) return;
  store::Upload& upload = *found->second.upload;
  if (offset == 0 && bytes.owner() && bytes.size() == upload.bytes()) {
    found->second = {nullptr, bytes};
  } else if (!upload.write(offset, bytes.view())) {
    receiving_.erase(found);
  }
}

Result<SharedBytes> UploadDesk::begin_sum(TaskId task) {
  auto found = receiving_.extract(task);
  if (found.empty() || (found.mapped().upload && !found.mapped().upload->complete())) {
    return retry("upload-incomplete", "the update was not received whole");
  }
  const auto& [upload, whole] = found.mapped();
  const SharedBytes bytes = upload ? SharedBytes(nullptr, upload->view()) : whole;
  summing_.insert_or_assign(task, std::move(found.mapped()));
  return bytes;
}

}  // namespace starling::coordinator

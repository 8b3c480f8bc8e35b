// SPDX-License-Identifier: Apache-2.0
// The bytes of an update where they were received: in memory, or in a file that is read piece by
// piece. Mapping a file would take its pages into this process's memory, and kill the process where
// they cannot be read.
#pragma once

#include <variant>

#include "core/base/disk.h"
#include "core/base/shared_bytes.h"

namespace starling::update {

class Payload {
 public:
  Payload(SharedBytes bytes = {}) : where_(std::move(bytes)) {}
  // The file must outlive all copies of this.
  explicit Payload(DiskFile& file) : where_(&file) {}

  std::uint64_t size() const {
    const auto* const file = std::get_if<DiskFile*>(&where_);
    return file != nullptr ? (*file)->size() : std::get<SharedBytes>(where_).size();
  }
  // Null: it is in a file.
  const SharedBytes* in_memory() const { return std::get_if<SharedBytes>(&where_); }
  // Fills `to` from `offset` on; the errors of DiskFile::read. Requires: it is within the size.
  [[nodiscard]] Result<void> read(std::uint64_t offset, MutableByteView to) const;

 private:
  std::variant<SharedBytes, DiskFile*> where_;
};

}  // namespace starling::update

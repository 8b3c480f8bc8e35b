// SPDX-License-Identifier: Apache-2.0
// A payload in a file, as the spool has it, which may not be readable to its end.
#pragma once

#include "core/update/payload.h"

namespace starling::testing {

class FilePayload final : public DiskFile {
 public:
  explicit FilePayload(SharedBytes bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    if (offset + to.size() > readable) return internal("io-error", "Input/output error");
    return update::Payload(bytes_).read(offset, to);
  }

  std::uint64_t readable = UINT64_MAX;

 private:
  SharedBytes bytes_;
};

}  // namespace starling::testing

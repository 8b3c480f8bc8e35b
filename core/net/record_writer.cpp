// SPDX-License-Identifier: Apache-2.0
#include "core/net/record_writer.h"

#include <algorithm>

namespace starling::net {

bool RecordWriter::append(ByteView bytes) {
  if (staged_ > 0) {
    const std::size_t taken = std::min(bytes.size(), kRecordBytes - staged_);
    std::copy_n(bytes.begin(), taken, stage_.begin() + static_cast<std::ptrdiff_t>(staged_));
    staged_ += taken;
    bytes = bytes.subspan(taken);
    if (staged_ == kRecordBytes && !flush()) return false;
  }
  const std::size_t whole = bytes.size() / kRecordBytes * kRecordBytes;
  if (whole > 0 && !engine_.write(bytes.first(whole))) return false;
  bytes = bytes.subspan(whole);
  if (!bytes.empty()) {
    std::copy(bytes.begin(), bytes.end(), stage_.begin());
    staged_ = bytes.size();
  }
  return true;
}

bool RecordWriter::flush() {
  if (staged_ == 0) return true;
  const std::size_t bytes = std::exchange(staged_, 0);
  return engine_.write(ByteView(stage_).first(bytes));
}

}  // namespace starling::net

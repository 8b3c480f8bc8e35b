// SPDX-License-Identifier: Apache-2.0
// Cuts what is sent into full TLS records: a small head and header before each 64 KiB payload would
// otherwise cost a record of their own. For sources of this folder only.
#pragma once

#include <array>

#include "core/net/tls_engine.h"

namespace starling::net {

class RecordWriter {
 public:
  static constexpr std::size_t kRecordBytes = 16 * 1024;

  explicit RecordWriter(TlsEngine& engine) : engine_(engine) {}

  // False when the engine failed. Bytes are copied only where a record's border falls into them.
  bool append(ByteView bytes);
  bool flush();

 private:
  TlsEngine& engine_;
  std::size_t staged_ = 0;
  std::array<std::byte, kRecordBytes> stage_;  // not cleared: only what is filled is read
};

}  // namespace starling::net

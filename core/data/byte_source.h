// SPDX-License-Identifier: Apache-2.0
// A file, plain or gzip (told by its first bytes), as a stream of exactly the bytes asked for: what
// a compressed file may expand to is never more than its reader has room for.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/base/bytes.h"

namespace starling::data {

class ByteSource {
 public:
  // Fails with "dataset-missing" or "dataset-unreadable".
  [[nodiscard]] static Result<ByteSource> open(const std::filesystem::path& path);
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;

  const std::string& name() const;
  // Fails with "dataset-malformed" where a file of this size cannot hold so many bytes, however
  // well compressed (deflate: 1032 to 1); asked before memory is taken for them.
  [[nodiscard]] Result<void> expect_at_least(std::uint64_t bytes) const;
  // Fills `out`; "dataset-malformed" where the file ends before or its compression is broken.
  [[nodiscard]] Result<void> read(MutableByteView out);
  // Fails with "dataset-malformed" where anything follows, or the gzip checksum is wrong.
  [[nodiscard]] Result<void> expect_end();

 private:
  class State;
  explicit ByteSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace starling::data

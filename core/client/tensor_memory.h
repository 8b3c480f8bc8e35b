// SPDX-License-Identifier: Apache-2.0
// The memory that a trainer shares, as a file without a name. This side never maps it: the other
// may change its size at any time, and what is mapped beyond its end cannot be read without a
// signal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "core/base/error.h"
#include "core/base/file_descriptor.h"

namespace starling::client {

class TensorMemory {
 public:
  static constexpr std::uint64_t kAlignment = 64;

  // Where a second tensor begins behind one of so many bytes at offset 0: half a page beyond a page
  // boundary. Large allocations begin near a page boundary, and a copy whose source and destination
  // are nearly equal modulo the page size takes more than twice as long.
  static std::uint64_t place_after(std::uint64_t bytes);

  // A memfd; where the kernel has none, a file in `directory`. "trainer-cannot-start".
  [[nodiscard]] static Result<TensorMemory> make(const std::filesystem::path& directory);

  // "trainer-protocol" where the trainer has changed its size.
  [[nodiscard]] Result<void> check_size() const;

  int descriptor() const { return file_.get(); }
  std::uint64_t bytes() const { return bytes_; }
  // Grows to at least so many bytes. "io-error", as write().
  [[nodiscard]] Result<void> reserve(std::uint64_t bytes);
  [[nodiscard]] Result<void> write(std::uint64_t offset, std::span<const float> values);
  // "trainer-protocol" where the trainer has changed its size, as reserve().
  [[nodiscard]] Result<void> read(std::uint64_t offset, std::span<float> values) const;

 private:
  explicit TensorMemory(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace starling::client

// SPDX-License-Identifier: Apache-2.0
// Large buffers that connections borrow while bytes are on their way and give back when they are
// idle: ten thousand silent connections hold none. For sources of this folder only.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/bytes.h"

namespace starling::net {

class BufferPool {
 public:
  static constexpr std::size_t kAlignment = 64;

  class GiveBack {
   public:
    GiveBack() = default;
    explicit GiveBack(BufferPool* pool) : pool_(pool) {}
    void operator()(std::byte* buffer) const { pool_->give_back(buffer); }

   private:
    BufferPool* pool_ = nullptr;
  };
  using Buffer = std::unique_ptr<std::byte[], GiveBack>;

  explicit BufferPool(std::size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  std::size_t buffer_bytes() const { return buffer_bytes_; }
  std::size_t borrowed() const { return borrowed_; }  // buffers that are out
  // Not cleared. The pool must outlive the buffer.
  Buffer borrow();

 private:
  static constexpr std::size_t kSparesMax = 32;
  void give_back(std::byte* buffer);

  std::size_t buffer_bytes_;
  std::size_t borrowed_ = 0;
  std::vector<std::byte*> spares_;
};

struct BufferPools {
  BufferPool records{256 * 1024};  // ciphertext: many TLS records for each system call
  BufferPool frames{128 * 1024};   // one frame: its header, then its payload
};

}  // namespace starling::net

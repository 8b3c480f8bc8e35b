// SPDX-License-Identifier: Apache-2.0
#include "core/net/buffer_pool.h"

#include <new>

namespace starling::net {
namespace {

void release(std::byte* buffer) {
  ::operator delete[](buffer, std::align_val_t(BufferPool::kAlignment));
}

}  // namespace

BufferPool::~BufferPool() {
  for (std::byte* buffer : spares_) release(buffer);
}

BufferPool::Buffer BufferPool::borrow() {
  std::byte* buffer = nullptr;
  if (spares_.empty()) {
    buffer = new (std::align_val_t(kAlignment)) std::byte[buffer_bytes_];
  } else {
    buffer = spares_.back();
    spares_.pop_back();
  }
  ++borrowed_;
  return {buffer, GiveBack(this)};
}

void BufferPool::give_back(std::byte* buffer) {
  --borrowed_;
  if (spares_.size() < kSparesMax) {
    spares_.push_back(buffer);
  } else {
    release(buffer);
  }
}

}  // namespace starling::net

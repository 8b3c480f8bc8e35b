// SPDX-License-Identifier: Apache-2.0
#include "core/linalg/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "core/linalg/aligned.h"

namespace starling::linalg {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
// Small enough that a test's few vectors do not cost much, large enough to need few.
constexpr std::size_t kRegion = std::size_t{32} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

class Pool {
 public:
  void* take(std::size_t bytes) {
    const std::size_t size = round_up(bytes, kAlignment);
    const std::lock_guard lock(mutex_);
    std::vector<void*>& free = free_[size];
    if (!free.empty()) {
      void* block = free.back();
      free.pop_back();
      return block;
    }
    if (left_ < size) open_region(size);
    void* block = next_;
    next_ += size;
    left_ -= size;
    return block;
  }

  void give(void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[round_up(bytes, kAlignment)].push_back(block);
  }

 private:
  // What is left of the last region is not used any more.
  void open_region(std::size_t size) {
    const std::size_t bytes = round_up(std::max(size, kRegion), kPage);
    next_ = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kPage}));
    left_ = bytes;
    prefer_huge_pages(next_, bytes);
  }

  std::mutex mutex_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::map<std::size_t, std::vector<void*>> free_;  // by size
};

// Outlives every static that may still hold a block.
Pool& pool() {
  static Pool* const kPool = new Pool;
  return *kPool;
}

}  // namespace

void prefer_huge_pages(void* memory, std::size_t bytes) {
  const auto begin = round_up(reinterpret_cast<std::uintptr_t>(memory), kPage);
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kPage * kPage;
  if (begin >= end) return;
  // Only advice: a refusal changes nothing but the speed.
  static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
}

void* take_huge_block(std::size_t bytes) { return pool().take(bytes); }

void give_huge_block(void* block, std::size_t bytes) { pool().give(block, bytes); }

}  // namespace starling::linalg

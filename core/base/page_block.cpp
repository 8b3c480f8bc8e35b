// SPDX-License-Identifier: Apache-2.0
#include "core/base/page_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#include "core/base/check.h"

namespace starling {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

std::byte* map(std::size_t bytes) {
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

// Large pages lie at multiples of their size, and the system has none for a part of one.
std::byte* map_at_large_page(std::size_t bytes) {
  std::byte* const data = map(bytes + kLargePage);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(data) % kLargePage;
  if (before > 0) ::munmap(data, before);
  if (before < kLargePage) ::munmap(data + before + bytes, kLargePage - before);
  return data + before;
}

// The last large page is worth its room where little of it is left over.
std::size_t whole_large_pages(std::size_t bytes) {
  const std::size_t whole = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  return whole - bytes <= bytes / 8 ? whole : bytes;
}

}  // namespace

PageBlock::PageBlock(std::size_t bytes, Pages pages) : size_(bytes), mapped_(bytes) {
  if (bytes == 0) return;
  if (pages == Pages::kSmall || bytes < kLargePage / 2) {
    data_ = map(mapped_);
    return;
  }
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  mapped_ = (whole_large_pages(bytes) + kPage - 1) / kPage * kPage;
  data_ = map_at_large_page(mapped_);
  // Only advice: a refusal changes nothing but the speed.
  static_cast<void>(::madvise(data_, mapped_, MADV_HUGEPAGE));
}

PageBlock::~PageBlock() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

void PageBlock::release(std::size_t offset, std::size_t bytes) {
  STARLING_CHECK(offset <= size_ && bytes <= size_ - offset);
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + kPage - 1) / kPage * kPage;
  // The last page is the block's own even where the block ends within it.
  const std::size_t end = offset + bytes == size_ ? mapped_ : (offset + bytes) / kPage * kPage;
  if (begin >= end) return;
  STARLING_CHECK(::madvise(data_ + begin, end - begin, MADV_DONTNEED) == 0);
}

}  // namespace starling

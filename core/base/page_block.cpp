// SPDX-License-Identifier: Apache-2.0
#include "core/base/page_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "core/base/check.h"

namespace starling {

PageBlock::PageBlock(std::size_t bytes, Pages pages) : size_(bytes) {
  if (bytes == 0) return;
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(data);
  // Only advice: a refusal changes nothing but the speed.
  if (pages == Pages::kLarge) static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
}

PageBlock::~PageBlock() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void PageBlock::release(std::size_t offset, std::size_t bytes) {
  STARLING_CHECK(offset <= size_ && bytes <= size_ - offset);
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + kPage - 1) / kPage * kPage;
  // The last page is the block's own even where the block ends within it.
  const std::size_t end = offset + bytes == size_ ? size_ : (offset + bytes) / kPage * kPage;
  if (begin >= end) return;
  STARLING_CHECK(::madvise(data_ + begin, end - begin, MADV_DONTNEED) == 0);
}

}  // namespace starling

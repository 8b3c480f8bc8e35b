// SPDX-License-Identifier: Apache-2.0
#include "core/base/shared_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/check.h"

namespace starling {

void SharedBytes::leave(std::size_t offset, std::size_t count) const {
  STARLING_CHECK(offset <= size() && count <= size() - offset);
  if (!mapped_) return;
  static const auto kPage = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<std::uintptr_t>(view_.data() + offset);
  const std::uintptr_t begin = from / kPage * kPage;
  // The page in which the range ends is about to be read on, unless nothing follows.
  const std::uintptr_t end =
      offset + count == size() ? from + count : (from + count) / kPage * kPage;
  if (begin >= end) return;
  // Nothing is lost: the file keeps its pages.
  static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED));
}

}  // namespace starling

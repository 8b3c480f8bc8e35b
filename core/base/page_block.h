// SPDX-License-Identifier: Apache-2.0
// Memory straight from the system: zeros that take room only once they are touched, and that go
// back at once. An allocator keeps what is freed for itself, which for whole models is too much.
#pragma once

#include <cstddef>
#include <utility>

namespace starling {

class PageBlock {
 public:
  PageBlock() = default;
  // kLarge asks for large pages where the system has them: for blocks that are written from one end
  // to the other.
  enum class Pages { kSmall, kLarge };
  // Zeros. Throws std::bad_alloc.
  explicit PageBlock(std::size_t bytes, Pages pages = Pages::kSmall);
  ~PageBlock();
  PageBlock(PageBlock&& other) noexcept { swap(other); }
  PageBlock& operator=(PageBlock&& other) noexcept {
    PageBlock(std::move(other)).swap(*this);
    return *this;
  }

  std::byte* data() const { return data_; }  // aligned to a page
  std::size_t size() const { return size_; }

  // Gives the pages that lie wholly within [offset, offset + bytes) back to the system; they read
  // as zeros from then on. Requires: the range lies within the block.
  void release(std::size_t offset, std::size_t bytes);

 private:
  void swap(PageBlock& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  // with what is left over of the last page
};

}  // namespace starling

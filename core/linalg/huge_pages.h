// SPDX-License-Identifier: Apache-2.0
// Memory on large pages where the system grants them: what strides over many models at once spends
// a quarter of its time on address translation otherwise.
#pragma once

#include <cstddef>
#include <vector>

namespace starling::linalg {

// Asks for large pages for memory that has not been touched yet. Without effect where there are
// none; never fails.
void prefer_huge_pages(void* memory, std::size_t bytes);

// Blocks that begin on a cache line, cut from regions on large pages; a block given back serves the
// next request of its size. Memory goes back to the system when the process ends: for vectors that
// live and die together in great number. Any thread.
void* take_huge_block(std::size_t bytes);
void give_huge_block(void* block, std::size_t bytes);

template <class T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(take_huge_block(count * sizeof(T))); }
  void deallocate(T* pointer, std::size_t count) { give_huge_block(pointer, count * sizeof(T)); }
  friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }
};

// A node's vector where many nodes are simulated.
template <class T>
using NodeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace starling::linalg

// SPDX-License-Identifier: Apache-2.0
// Float buffers that begin on a cache line, as vector loads want them.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace starling::linalg {

inline constexpr std::size_t kAlignment = 64;

template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{kAlignment}));
  }
  void deallocate(T* pointer, std::size_t) {
    ::operator delete(pointer, std::align_val_t{kAlignment});
  }
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace starling::linalg

// SPDX-License-Identifier: Apache-2.0
#include "tests/wire/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t total = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  total += bytes;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace starling::testing {

std::size_t bytes_allocated() { return total; }

}  // namespace starling::testing

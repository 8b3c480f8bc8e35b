// SPDX-License-Identifier: Apache-2.0
#include "core/base/archive.h"

#include <algorithm>

namespace starling {

void Archive::bytes(MutableByteView bytes) {
  if (bytes.empty()) return;
  if (!reading()) return write_(bytes);
  good_ = good_ && bytes.size() <= left_ && read_(bytes);
  if (good_) {
    left_ -= bytes.size();
  } else {
    std::ranges::fill(bytes, std::byte{0});
  }
}

void Archive::operator()(bool& value) {
  auto byte = static_cast<std::uint8_t>(value ? 1 : 0);
  (*this)(byte);
  expect(byte <= 1);
  value = byte == 1;
}

std::size_t Archive::count(std::size_t count, std::size_t bytes_min) {
  std::uint64_t number = count;
  (*this)(number);
  if (!reading()) return count;
  expect(number <= left_ / bytes_min);
  return good_ ? static_cast<std::size_t>(number) : 0;
}

}  // namespace starling

// SPDX-License-Identifier: Apache-2.0
// Headers written word by word after the encoding's specification (capnproto.org/encoding.html),
// without the library: what other versions would send, and what nobody should.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace starling::testing {

class RawMessage {
 public:
  // Element sizes of lists.
  static constexpr std::uint32_t kVoid = 0, kByte = 2, kPointer = 6, kComposite = 7;

  // Starts with the root pointer, at word 0 of the segment.
  RawMessage() : words_(1) {}
  // A root struct right behind its pointer. Its data starts at word 1.
  RawMessage(std::uint16_t data_words, std::uint16_t pointers) : RawMessage() {
    struct_pointer(0, allocate(data_words + pointers), data_words, pointers);
  }

  std::size_t allocate(std::size_t words) {
    words_.resize(words_.size() + words);
    return words_.size() - words;
  }
  std::uint64_t& word(std::size_t at) { return words_.at(at); }
  std::size_t size() const { return words_.size(); }

  void struct_pointer(std::size_t at, std::size_t target, std::uint16_t data_words,
                      std::uint16_t pointers) {
    word(at) =
        offset(at, target) << 2 | std::uint64_t{data_words} << 32 | std::uint64_t{pointers} << 48;
  }
  // `count`: elements, or words of a composite list.
  void list_pointer(std::size_t at, std::size_t target, std::uint32_t element_size,
                    std::uint64_t count) {
    word(at) = 1 | offset(at, target) << 2 | std::uint64_t{element_size} << 32 | count << 35;
  }
  // In front of a composite list's elements.
  void tag(std::size_t at, std::uint64_t count, std::uint16_t data_words, std::uint16_t pointers) {
    word(at) = count << 2 | std::uint64_t{data_words} << 32 | std::uint64_t{pointers} << 48;
  }
  void far_pointer(std::size_t at, std::size_t target, std::uint32_t segment,
                   bool double_far = false) {
    word(at) =
        2 | (double_far ? 4U : 0U) | std::uint64_t{target} << 3 | std::uint64_t{segment} << 32;
  }
  // Bytes with the zero that ends a text; returns where they stand.
  std::size_t text(std::size_t at, std::string_view value) { return bytes(at, value, 1); }
  std::size_t data(std::size_t at, std::string_view value) { return bytes(at, value, 0); }

  // The segment behind its table.
  Bytes header() const {
    const ByteView segment = std::as_bytes(std::span(words_));
    Bytes header(8);
    store_little<std::uint32_t>(header.data() + 4, static_cast<std::uint32_t>(words_.size()));
    header.insert(header.end(), segment.begin(), segment.end());
    return header;
  }

 private:
  // Signed, in words, from behind the pointer; 30 bits.
  static std::uint64_t offset(std::size_t at, std::size_t target) {
    return static_cast<std::uint64_t>(target - at - 1) & 0x3FFFFFFF;
  }
  std::size_t bytes(std::size_t at, std::string_view value, std::size_t zeros) {
    const std::size_t target = allocate((value.size() + zeros + 7) / 8);
    for (std::size_t i = 0; i < value.size(); ++i) {
      word(target + i / 8) |= std::uint64_t{static_cast<unsigned char>(value[i])} << i % 8 * 8;
    }
    list_pointer(at, target, kByte, value.size() + zeros);
    return target;
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace starling::testing

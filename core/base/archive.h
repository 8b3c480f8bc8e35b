// SPDX-License-Identifier: Apache-2.0
// The state of a computation, so that another process goes on with the same bits: one function
// visits all values in one order, and an archive either writes them or reads them back. What was
// read and cannot have been written makes it bad; it reads zeros from then on.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "core/base/bytes.h"

namespace starling {

template <class T>
concept ArchivedNumber = (std::is_arithmetic_v<T> || std::is_enum_v<T>)&&!std::same_as<T, bool>;

class Archive {
 public:
  using Write = std::function<void(ByteView)>;
  using Read = std::function<bool(MutableByteView)>;  // false: there is no more

  explicit Archive(Write write) : write_(std::move(write)) {}
  // `length`: bytes that can be read.
  Archive(Read read, std::uint64_t length) : read_(std::move(read)), left_(length) {}

  bool reading() const { return read_ != nullptr; }
  bool good() const { return good_; }
  void fail() { good_ = false; }
  // What holds of every state that was written.
  void expect(bool holds) { good_ = good_ && holds; }
  // All was read, and nothing is left over.
  bool complete() const { return good_ && left_ == 0; }

  void bytes(MutableByteView bytes);

  template <ArchivedNumber T>
  void operator()(T& value) {
    bytes(std::as_writable_bytes(std::span(&value, 1)));
  }
  void operator()(bool& value);
  void operator()(std::string& text) { vector(text); }
  template <class T>
  void operator()(std::optional<T>& value) {
    bool has = value.has_value();
    (*this)(has);
    if (reading()) value = has ? std::optional<T>(T{}) : std::nullopt;
    if (has) (*this)(*value);
  }

  // So many as there are on both sides.
  template <ArchivedNumber T, std::size_t N>
  void elements(std::span<T, N> values) {
    bytes(std::as_writable_bytes(values));
  }
  // Any number.
  template <class Vector>
  void vector(Vector& values) {
    values.resize(count(values.size(), sizeof(values[0])));
    bytes(std::as_writable_bytes(std::span(values.data(), values.size())));
  }
  // The number of parts that follow. What is read is no more than the rest of the archive can hold
  // if each takes `bytes_min`, at least 1.
  std::size_t count(std::size_t count, std::size_t bytes_min);
  // A map whose keys are numbers: the size, then for each the key and `value(mapped)`.
  template <class Map, class Value>
  void map(Map& map, Value value) {
    std::size_t size = count(map.size(), sizeof(typename Map::key_type));
    if (!reading()) {
      for (auto& [key, mapped] : map) {
        typename Map::key_type written = key;
        (*this)(written);
        value(mapped);
      }
      return;
    }
    map.clear();
    for (; size > 0 && good_; --size) {
      typename Map::key_type key{};
      (*this)(key);
      value(map[key]);
    }
  }

 private:
  Write write_;
  Read read_;
  std::uint64_t left_ = 0;
  bool good_ = true;
};

}  // namespace starling

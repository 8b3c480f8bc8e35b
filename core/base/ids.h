// SPDX-License-Identifier: Apache-2.0
// Distinct types for the identifiers that travel together and must not be mixed up.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace starling {

// A named 64-bit number; `Tag` keeps two kinds apart.
template <class Tag>
class NumericId {
 public:
  constexpr NumericId() = default;
  constexpr explicit NumericId(std::uint64_t value) : value_(value) {}
  constexpr std::uint64_t value() const { return value_; }
  friend constexpr auto operator<=>(const NumericId&, const NumericId&) = default;

 private:
  std::uint64_t value_ = 0;
};

using RunId = NumericId<struct RunTag>;          // 1, 2, ... in order of submission
using TaskId = NumericId<struct TaskTag>;        // never 0; the idempotency key
using SessionId = NumericId<struct SessionTag>;  // one authenticated connection
using Round = std::uint32_t;                     // 1-based; 0 is the initial model
using Attempt = std::uint32_t;                   // 1-based within a round

}  // namespace starling

template <class Tag>
struct std::hash<starling::NumericId<Tag>> {
  std::size_t operator()(const starling::NumericId<Tag>& id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value());
  }
};

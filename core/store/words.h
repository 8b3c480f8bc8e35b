// SPDX-License-Identifier: Apache-2.0
// The one table of the words that stand for enumerators, in their order; commands print them and
// the database holds them.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/check.h"
#include "core/store/records.h"

namespace starling::store {

template <class Enum>
inline constexpr std::string_view kWords[1] = {};
template <>
inline constexpr std::string_view kWords<Role>[] = {"device", "peer", "operator"};
template <>
inline constexpr std::string_view kWords<ClientState>[] = {"active", "revoked"};
template <>
inline constexpr std::string_view kWords<TokenState>[] = {"open", "used", "revoked", "locked",
                                                          "expired"};
template <>
inline constexpr std::string_view kWords<RunState>[] = {"pending", "running", "completed", "failed",
                                                        "stopped"};
template <>
inline constexpr std::string_view kWords<PhaseKind>[] = {"train", "evaluate"};
template <>
inline constexpr std::string_view kWords<RoundState>[] = {"open", "committed", "abandoned"};
template <>
inline constexpr std::string_view kWords<TaskOutcome>[] = {"open", "committed", "expired",
                                                           "abandoned"};

template <class Enum>
std::string_view word_of(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  STARLING_CHECK(index < std::size(kWords<Enum>));
  return kWords<Enum>[index];
}

template <class Enum>
std::optional<Enum> from_word(std::string_view word) {
  for (std::size_t i = 0; i < std::size(kWords<Enum>); ++i) {
    if (kWords<Enum>[i] == word) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace starling::store

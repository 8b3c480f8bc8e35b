// SPDX-License-Identifier: Apache-2.0
// What a message may hold at most. Both directions are held to it: what decoding would refuse is
// not encoded either.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/clock.h"
#include "core/update/contribution.h"

namespace starling::wire {

inline constexpr std::size_t kHeaderBytesMax = 64 * 1024;
inline constexpr std::size_t kNameBytesMax = update::kNameBytesMax;  // names, codes, commands
inline constexpr std::size_t kSentenceBytesMax = 1024;               // what is written for people
inline constexpr std::size_t kRefusalBytesMax = 512;                 // of a greeting
inline constexpr std::size_t kSettingsMax = 256;
inline constexpr std::size_t kSettingKeyBytesMax = 128;
inline constexpr std::size_t kSettingValueBytesMax = 16 * 1024;
inline constexpr std::size_t kAbilitiesBytesMax = 512;  // with the blanks between them
inline constexpr std::size_t kShapeMax = 8;             // dimensions
inline constexpr std::size_t kInputsMax = 32;           // of a task, beside the model
inline constexpr std::size_t kVectorsMax = 256;
inline constexpr std::size_t kScalarsMax = update::kScalarsMax;
inline constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 40;   // of one vector
inline constexpr std::uint64_t kBulkBytesMax = std::uint64_t{1} << 50;  // all vectors; offsets
inline constexpr std::size_t kMembersMax = 10'000;                      // of a roster
inline constexpr std::size_t kSwimNewsMax = 64;                         // in one message
inline constexpr std::uint32_t kIncarnationMax = (1U << 30) - 1;
inline constexpr std::size_t kRosterBytesMax = 4 << 20;  // with its signature
inline constexpr std::size_t kRelayedHeaderBytesMax = 48 * 1024;
inline constexpr Duration kHeartbeatMin = std::chrono::milliseconds(1);
inline constexpr Duration kHeartbeatMax = std::chrono::hours(24);
inline constexpr Duration kDeadlineMax = std::chrono::hours(24 * 366);  // from zero on

}  // namespace starling::wire

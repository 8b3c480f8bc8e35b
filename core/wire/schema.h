// SPDX-License-Identifier: Apache-2.0
// Everything of Cap'n Proto that the codec uses, in one place, for the sake of what must stand
// before it.
#pragma once

// Cap'n Proto before 1.0 compares a C string with a StringPtr and leaves it to C++20 to swap the
// operands. Since P2468R2 (clang 16, g++ 13) a type that has operator!= is not swapped.
#include <kj/string.h>
#if defined(__cpp_impl_three_way_comparison) && (__clang_major__ >= 16 || __GNUC__ >= 13)
#include <capnp/common.h>
#if CAPNP_VERSION_MAJOR < 1
namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b == StringPtr(a); }
inline bool operator!=(const char* a, const StringPtr& b) { return b != StringPtr(a); }
}  // namespace kj
#endif
#endif

#include <capnp/any.h>
#include <capnp/message.h>

#include <cstdint>

#include "core/wire/protocol.capnp.h"

namespace starling::wire {

inline constexpr std::size_t kWordBytes = sizeof(capnp::word);

// VectorTransfer.kind
enum class TransferKind : std::uint8_t {
  kMix,
  kPush,
  kRequest,
  kReply,
  kReduce,
  kColumns,
  kModel,
  kEdgeMix,
  kIntroduction,
  kConfirmation,
};

// ReduceNote.kind
enum class NoteKind : std::uint8_t {
  kRegister,
  kList,  // or Standing
  kDone,
  kCommit,
  kWant,
  kAsk,
  kNotYet,
  kWait,
  kAhead,
  kAskProgress,
};

}  // namespace starling::wire

// SPDX-License-Identifier: Apache-2.0
// Input: a frame's type (u16, little-endian), then its header. A header whose segment table is
// wrong gets no further, so each is tried as it is and with its table set right.
#include "core/base/check.h"
#include "core/wire/codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace starling {
namespace {

// What was taken can be sent on and means the same. Only where pointers shared their target it may
// have become too large.
void decode(std::uint16_t type, ByteView input) {
  const Bytes header = to_bytes(input);
  const auto message = wire::decode_header(type, header);
  if (!message) {
    STARLING_CHECK(!message.error().code().empty() && !message.error().message().empty());
    return;
  }
  const auto again = wire::encode_header(*message);
  if (!again) {
    STARLING_CHECK(again.error().code() == "message-too-large");
    return;
  }
  const auto twice = wire::decode_header(type, *again);
  STARLING_CHECK(twice);
  STARLING_CHECK(*wire::encode_header(*twice) == *again);
}

}  // namespace
}  // namespace starling

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  const ByteView input = std::as_bytes(std::span(data, size));
  if (size < 2) return 0;
  const auto type = load_little<std::uint16_t>(input.data());
  decode(type, input.subspan(2));
  Bytes repaired = to_bytes(input.subspan(2, (size - 2) / 8 * 8));
  if (repaired.size() < 8) return 0;
  store_little<std::uint32_t>(repaired.data(), 0);
  store_little(repaired.data() + 4, static_cast<std::uint32_t>(repaired.size() / 8 - 1));
  decode(type, repaired);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "core/wire/update_head.h"

#include "core/wire/codec.h"
#include "core/wire/frame_type.h"

namespace starling::wire {

Result<Bytes> encode_update_head(const update::ContributionHead& head) {
  return encode_header(protocol::UpdateOffer{head});
}

Result<update::ContributionHead> decode_update_head(ByteView bytes) {
  constexpr auto kOffer = static_cast<std::uint16_t>(FrameType::kUpdateOffer);
  STARLING_ASSIGN(auto message, decode_header(kOffer, bytes));
  return std::get<protocol::UpdateOffer>(std::move(message)).head;
}

}  // namespace starling::wire

// SPDX-License-Identifier: Apache-2.0
// The head of an update outside a message: as an UpdateOffer carries it, for files.
#pragma once

#include "core/base/bytes.h"
#include "core/protocol/messages.h"
#include "core/update/head_codec.h"
#include "core/wire/limits.h"

namespace starling::wire {

// Fails as encode_header does.
[[nodiscard]] Result<Bytes> encode_update_head(const update::ContributionHead& head);
// Fails as decode_header does.
[[nodiscard]] Result<update::ContributionHead> decode_update_head(ByteView bytes);

inline constexpr update::HeadCodec kUpdateHeads{encode_update_head, decode_update_head,
                                                kHeaderBytesMax};

}  // namespace starling::wire

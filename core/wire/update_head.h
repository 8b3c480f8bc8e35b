// SPDX-License-Identifier: Apache-2.0
// The head of an update outside a message: as an UpdateOffer carries it, for files.
#pragma once

#include "core/base/bytes.h"
#include "core/protocol/messages.h"

namespace starling::wire {

// Fails as encode_header does.
[[nodiscard]] Result<Bytes> encode_update_head(const update::ContributionHead& head);
// Fails as decode_header does.
[[nodiscard]] Result<update::ContributionHead> decode_update_head(ByteView bytes);

}  // namespace starling::wire

// SPDX-License-Identifier: Apache-2.0
// How the head of an update is written to a file: as the wire does (wire/update_head.h).
#pragma once

#include "core/update/contribution.h"

namespace starling::update {

struct HeadCodec {
  Result<Bytes> (*encode)(const ContributionHead& head);
  Result<ContributionHead> (*decode)(ByteView bytes);
  std::size_t bytes_max;  // of what encode() makes
};

}  // namespace starling::update

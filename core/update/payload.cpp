// SPDX-License-Identifier: Apache-2.0
#include "core/update/payload.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::update {

Result<void> Payload::read(std::uint64_t offset, MutableByteView to) const {
  STARLING_CHECK(offset <= size() && to.size() <= size() - offset);
  if (auto* const* const file = std::get_if<DiskFile*>(&where_)) return (*file)->read(offset, to);
  const ByteView bytes = std::get<SharedBytes>(where_).view();
  std::ranges::copy(bytes.subspan(static_cast<std::size_t>(offset), to.size()), to.begin());
  return {};
}

}  // namespace starling::update

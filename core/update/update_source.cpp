// SPDX-License-Identifier: Apache-2.0
#include "core/update/update_source.h"

#include <utility>

#include "core/base/check.h"

namespace starling::update {

void KeptUpdates::keep(std::string client, Contribution update) {
  const bool is_new = updates_.emplace(std::move(client), std::move(update)).second;
  STARLING_CHECK(is_new);
}

std::vector<const ContributionHead*> KeptUpdates::heads() const {
  std::vector<const ContributionHead*> heads;
  for (const auto& [client, update] : updates_) heads.push_back(&update.head());
  return heads;
}

// All could be read when they were validated, so that a disk breaks just now.
Result<void> KeptUpdates::read(std::size_t i, std::size_t first, std::size_t elements,
                               std::span<float> out) const {
  STARLING_CHECK(out.size() == updates_.size() * elements);
  std::size_t row = 0;
  for (const auto& [client, update] : updates_) {
    const auto done = update.read(i, first, out.subspan(row++ * elements, elements));
    if (!done) return internal(done.error().code(), client + ": " + done.error().message());
  }
  return {};
}

}  // namespace starling::update

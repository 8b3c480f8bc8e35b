// SPDX-License-Identifier: Apache-2.0
#include "core/update/update_source.h"

#include <algorithm>
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

void KeptUpdates::read(std::size_t i, std::size_t first, std::size_t elements,
                       std::span<float> out) const {
  STARLING_CHECK(out.size() == updates_.size() * elements);
  auto row = out.begin();
  for (const auto& [client, update] : updates_) {
    update.visit_block(i, first, elements, [&](std::span<const float> values) {
      row = std::ranges::copy(values, row).out;
    });
  }
}

}  // namespace starling::update

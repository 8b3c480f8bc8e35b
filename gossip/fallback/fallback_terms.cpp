// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/fallback_terms.h"

#include <algorithm>

namespace starling::gossip {

bool is_fallback(const Settings& settings) {
  return std::ranges::any_of(settings, [](const auto& setting) {
    return setting.first.starts_with(kFallbackPrefix) &&
           setting.first.substr(kFallbackPrefix.size()).starts_with('.');
  });
}

Result<std::optional<FallbackTerms>> read_fallback(const Settings& settings) {
  if (!is_fallback(settings)) return std::optional<FallbackTerms>();
  FallbackTerms terms;
  STARLING_TRY(from_settings(kFallbackPrefix, settings, terms));
  return std::optional(terms);
}

Settings fallback_settings(FallbackTerms terms) { return to_settings(kFallbackPrefix, terms); }

}  // namespace starling::gossip

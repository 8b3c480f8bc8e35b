// SPDX-License-Identifier: Apache-2.0
// What a roster says where its network is no run of its own but the fallback of a coordinator's
// run: whose members train on by gossip while the coordinator is gone, and from when on.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/settings.h"

namespace starling::gossip {

// Its settings begin so; all other settings are those of a network.
inline constexpr std::string_view kFallbackPrefix = "fallback";

struct FallbackTerms {
  std::uint64_t run = 0;  // of the coordinator
  Duration after = std::chrono::seconds(30);
  Duration merge_within = std::chrono::minutes(10);
  int classes = 0;  // of the run's model; a device's own rows may lack some

  friend bool operator==(const FallbackTerms&, const FallbackTerms&) = default;
};

template <class V>
void describe(V& visit, FallbackTerms& o) {
  visit("run", o.run, FieldInfo{.help = "number of the coordinator's run", .min = 1});
  visit("after", o.after,
        FieldInfo{.help = "coordinator not heard for longer", .min = 0.1, .max = 86400});
  visit("merge-within", o.merge_within,
        FieldInfo{.help = "of its return", .min = 1, .max = 31.6e6});
  visit("classes", o.classes, FieldInfo{.help = "of the run's model", .min = 1, .max = 1 << 20});
}

// Whether a network with these settings is a fallback.
bool is_fallback(const Settings& settings);
// None of other networks; "unknown-setting" or "setting-invalid".
[[nodiscard]] Result<std::optional<FallbackTerms>> read_fallback(const Settings& settings);
// What the settings of the network are followed by.
Settings fallback_settings(FallbackTerms terms);

}  // namespace starling::gossip

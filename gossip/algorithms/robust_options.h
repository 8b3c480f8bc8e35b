// SPDX-License-Identifier: Apache-2.0
// The `[robust]` table: how far a neighbour's model may pull a node's own (robust_mixing.h).
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/base/fields.h"

namespace starling::gossip {

inline constexpr std::array<std::string_view, 3> kRobustRules = {"off", "clip", "remove"};

struct RobustOptions {
  std::string rule = "off";
  int bad = 1;  // neighbours of one node that may lie

  bool is_on() const { return rule != "off"; }
};

template <class V>
void describe(V& visit, RobustOptions& o) {
  visit("rule", o.rule,
        FieldInfo{.help = "bounds what lying neighbours can do: clip shortens the differences to "
                          "far neighbours' models, remove leaves the farthest models out",
                  .choices = kRobustRules});
  visit("bad", o.bad,
        FieldInfo{.help = "clip, remove: how many neighbours of one node may lie",
                  .unit = "neighbours",
                  .min = 0,
                  .max = 1e6});
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// The `[attack]` table: nodes of a simulated network that lie about their models.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/base/fields.h"

namespace starling::gossip {

inline constexpr std::array<std::string_view, 4> kAttacks = {"none", "sign-flip", "alie",
                                                             "outlier"};

struct AttackOptions {
  std::string kind = "none";
  int nodes = 1;
  double scale = 0;
};

template <class V>
void describe(V& visit, AttackOptions& o) {
  visit("kind", o.kind,
        FieldInfo{.help = "simulate: what lying nodes send in place of their models, from the mean "
                          "m and the standard deviation s of the honest ones: sign-flip -scale m, "
                          "alie m - scale s, outlier m + scale times the root mean square of m",
                  .choices = kAttacks});
  visit("nodes", o.nodes,
        FieldInfo{.help = "how many nodes lie, drawn from the seed; they are not measured",
                  .unit = "nodes",
                  .min = 1,
                  .max = 1e6});
  visit("scale", o.scale,
        FieldInfo{.help = "strength of the attack; 0: 1 of sign-flip, 1.5 of alie, 100 of outlier",
                  .min = 0,
                  .max = 1e30});
}

}  // namespace starling::gossip

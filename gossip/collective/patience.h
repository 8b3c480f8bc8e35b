// SPDX-License-Identifier: Apache-2.0
// How long a member waits for another, by what was learned. Attempts that came to nothing leave the
// next ones more time: what seems stuck may only be slow.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace starling::collective {

struct Patience {
  Duration answer;      // of a gatherer
  Duration piece;       // from one to the next
  Duration start;       // for a piece while links may still be made; zero: they are
  Duration max;         // unless what is waited for takes longer anyway
  unsigned failed = 0;  // attempts of one gatherer

  static constexpr unsigned kDoublingsMax = 10;
  Duration stretched(Duration wait) const {
    const unsigned doublings = std::min(failed > 2 ? failed - 2 : 0, kDoublingsMax);
    return std::min(wait * (1U << doublings), std::max(wait, max));
  }
  Duration for_piece() const { return std::max(stretched(piece), start); }
};

}  // namespace starling::collective

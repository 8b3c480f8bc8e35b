// SPDX-License-Identifier: Apache-2.0
#include "core/base/backoff.h"

#include <algorithm>
#include <cmath>

namespace starling {

Duration Backoff::next() {
  const double minimum = to_seconds(options_.minimum);
  const double ceiling = std::min(to_seconds(options_.maximum), std::ldexp(minimum, failures_ + 1));
  failures_ = std::min(failures_ + 1, 62);
  return from_seconds(rng_.uniform(minimum, std::max(minimum, ceiling)));
}

}  // namespace starling

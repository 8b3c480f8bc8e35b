// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_failures.h"

#include "core/base/nearest_name.h"

namespace starling::coordinator {

bool ClientFailures::failed(const std::string& client, const std::string& reason, bool permanent) {
  Failures& failures = last_[client];
  const bool before = failures.in_a_row >= kInARowMax;
  failures.in_a_row = permanent ? kInARowMax : failures.in_a_row + 1;
  failures.reason = printable(reason, kReasonBytesMax);
  return !before && failures.in_a_row >= kInARowMax;
}

const std::string* ClientFailures::why_left_out(const std::string& client) const {
  const auto found = last_.find(client);
  const bool left_out = found != last_.end() && found->second.in_a_row >= kInARowMax;
  return left_out ? &found->second.reason : nullptr;
}

}  // namespace starling::coordinator

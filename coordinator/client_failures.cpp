// SPDX-License-Identifier: Apache-2.0
#include "coordinator/client_failures.h"

namespace starling::coordinator {

bool ClientFailures::failed(const std::string& client, bool permanent) {
  int& count = in_a_row_[client];
  const bool before = count >= kInARowMax;
  count = permanent ? kInARowMax : count + 1;
  return !before && count >= kInARowMax;
}

bool ClientFailures::left_out(const std::string& client) const {
  const auto found = in_a_row_.find(client);
  return found != in_a_row_.end() && found->second >= kInARowMax;
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_failures.h"

#include "core/base/nearest_name.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kReasonBytesMax = 200;

}  // namespace

bool ClientFailures::failed(const std::string& client, const std::string& reason, bool permanent) {
  Failures& failures = last_[client];
  const bool before = failures.in_a_row >= in_a_row_max_;
  failures.in_a_row = permanent ? in_a_row_max_ : failures.in_a_row + 1;
  failures.reason = printable(reason, kReasonBytesMax);
  return !before && failures.in_a_row >= in_a_row_max_;
}

void ClientFailures::give_chance(const std::string& client) {
  if (left_out(client)) last_.at(client).in_a_row = in_a_row_max_ - 1;
}

const std::string* ClientFailures::why_left_out(const std::string& client) const {
  const auto found = last_.find(client);
  const bool left_out = found != last_.end() && found->second.in_a_row >= in_a_row_max_;
  return left_out ? &found->second.reason : nullptr;
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_pauses.h"

#include "coordinator/machine/client_failures.h"
#include "core/base/nearest_name.h"

namespace starling::coordinator {

bool ClientPauses::failed(const std::string& client, const std::string& reason, Round round) {
  const bool before = left_out(client, round);
  Row& row = rows_[client];
  ++row.in_a_row;
  row.reason = printable(reason, ClientFailures::kReasonBytesMax);
  row.came_back = false;
  if (row.in_a_row < in_a_row_max_) return false;
  if (round >= row.next_chance) {
    row.pause = row.pause == 0 ? kFirstPause : 2 * row.pause;
    row.next_chance = round + 1 + row.pause;
  }
  return !before;
}

void ClientPauses::came_back(const std::string& client) {
  const auto found = rows_.find(client);
  if (found != rows_.end() && may_come_back(found->second)) found->second.came_back = true;
}

const ClientPauses::Row* ClientPauses::find_left_out(const std::string& client, Round round) const {
  const auto found = rows_.find(client);
  if (found == rows_.end()) return nullptr;
  const Row& row = found->second;
  const bool left_out = row.in_a_row >= in_a_row_max_ && round < row.next_chance && !row.came_back;
  return left_out ? &row : nullptr;
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// Clients that fail at every task of a run, because their data or their program does not fit it:
// after a few failures of their own in a row they are left out of the run.
#pragma once

#include <map>
#include <string>

namespace starling::coordinator {

class ClientFailures {
 public:
  static constexpr int kInARowMax = 3;

  // A failure of the client's own making. Returns whether it is left out from now on.
  bool failed(const std::string& client, bool permanent);
  void succeeded(const std::string& client) { in_a_row_.erase(client); }
  bool left_out(const std::string& client) const;

 private:
  std::map<std::string, int> in_a_row_;  // of clients whose last task failed
};

}  // namespace starling::coordinator

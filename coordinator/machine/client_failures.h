// SPDX-License-Identifier: Apache-2.0
// Clients that fail at every training of a run, because their data or their program does not fit
// it: after a few failures of their own in a row they are left out of the run. Trainings that ended
// otherwise without counting (is_circumstance) do not break the row. Those that were missed, and
// evaluations, are counted apart (ClientPauses).
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace starling::coordinator {

// Before the code of a client that can do no task of the run: one such failure is enough.
inline constexpr std::string_view kPermanent = "permanent-";

class ClientFailures {
 public:
  static constexpr int kInARowMax = 3;
  static constexpr std::size_t kReasonBytesMax = 200;  // of what is kept of a reason

  // A failure of the client's own making. Returns whether it is left out from now on.
  bool failed(const std::string& client, const std::string& reason, bool permanent = false);
  void succeeded(const std::string& client) { last_.erase(client); }
  bool left_out(const std::string& client) const { return why_left_out(client) != nullptr; }
  // The sentence of its last failure, shortened; null where the client is not left out.
  const std::string* why_left_out(const std::string& client) const;

 private:
  struct Failures {
    int in_a_row = 0;
    std::string reason;  // of the last one
  };

  std::map<std::string, Failures> last_;  // of clients whose last training failed
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "core/store/records.h"

#include "core/store/words.h"

namespace starling::store {

std::string_view to_string(Role role) { return word_of(role); }
std::string_view to_string(ClientState state) { return word_of(state); }
std::string_view to_string(TokenState state) { return word_of(state); }
std::string_view to_string(RunState state) { return word_of(state); }
std::string_view to_string(PhaseKind kind) { return word_of(kind); }
std::string_view to_string(RoundState state) { return word_of(state); }
std::string_view to_string(TaskOutcome outcome) { return word_of(outcome); }

Result<Role> parse_role(std::string_view word) {
  const std::optional<Role> role = from_word<Role>(word);
  if (role) return *role;
  return wrong_setting("role-unknown", "role '" + std::string(word) +
                                           "' is unknown: it is device, peer or operator");
}

bool is_finished(RunState state) {
  return state == RunState::kCompleted || state == RunState::kFailed || state == RunState::kStopped;
}

bool is_withdrawal(const Abandonment& why) {
  return why.code == "model-damaged" || why.code == "base-withdrawn";
}

}  // namespace starling::store

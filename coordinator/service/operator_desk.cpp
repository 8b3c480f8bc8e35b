// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/operator_desk.h"

#include <array>
#include <utility>

#include "core/base/nearest_name.h"

namespace starling::coordinator {

OperatorDesk::OperatorDesk(const Parts& parts, Handlers handlers, Sha256Digest authority,
                           std::uint16_t port)
    : parts_(parts), handlers_(std::move(handlers)), authority_(authority), port_(port) {}

Answer OperatorDesk::respond(const std::string& command, const OperatorCall& call) {
  using Method = Answer (OperatorDesk::*)(const OperatorCall&);
  static constexpr std::array<std::pair<std::string_view, Method>, 18> kCommands = {{
      {"token-new", &OperatorDesk::token_new},
      {"token-list", &OperatorDesk::token_list},
      {"token-revoke", &OperatorDesk::token_revoke},
      {"client-list", &OperatorDesk::client_list},
      {"client-show", &OperatorDesk::client_show},
      {"client-revoke", &OperatorDesk::client_revoke},
      {"run-submit", &OperatorDesk::run_submit},
      {"run-list", &OperatorDesk::run_list},
      {"run-show", &OperatorDesk::run_show},
      {"run-state", &OperatorDesk::run_state},
      {"run-log", &OperatorDesk::run_log},
      {"run-stop", &OperatorDesk::run_stop},
      {"run-model", &OperatorDesk::run_model},
      {"run-export", &OperatorDesk::run_export},
      {"gossip-start", &OperatorDesk::gossip_start},
      {"gossip-show", &OperatorDesk::gossip_show},
      {"gossip-stop", &OperatorDesk::gossip_stop},
      {"backup-directory", &OperatorDesk::backup},
  }};
  for (const auto& [name, method] : kCommands) {
    if (name == command) return noted((this->*method)(call));
  }
  return unsupported("unknown-command", "this coordinator does not know the request '" +
                                            printable(command) +
                                            "'; it may be older than the program that asks");
}

Answer OperatorDesk::noted(Answer answer) {
  const bool broken = !answer && answer.error().kind() == ErrorKind::kInternal;
  if (broken) handlers_.on_broken(answer.error());
  return answer;
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job_warnings.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/counted.h"
#include "core/client/abilities.h"

namespace starling::coordinator {

std::vector<std::string> job_warnings(const Job& job, const ClientTable& clients) {
  if (job.evaluate.federated_every == 0) return {};
  std::size_t spoke = 0;
  for (const auto& [name, client] : clients.all()) {
    if (std::ranges::binary_search(client.greeting.abilities, client::kEvaluateAbility)) return {};
    if (client.greeting != Greeting{}) ++spoke;
  }
  if (spoke == 0) return {};
  return {
      fmt::format("evaluate.federated-every is set, and of the {} that connected so far none "
                  "holds rows out for it (data.hold-out in edge.toml)",
                  counted(spoke, "client"))};
}

}  // namespace starling::coordinator

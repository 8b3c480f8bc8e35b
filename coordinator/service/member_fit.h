// SPDX-License-Identifier: Apache-2.0
// Who of a gossip network's members could not train its model, by what each said of itself when it
// last connected.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "coordinator/service/gossip_run.h"
#include "core/base/error.h"
#include "core/store/records.h"

namespace starling::coordinator {

struct MemberFit {
  std::map<std::string, std::string> unfit;  // why, by name
  std::optional<Error> disagreement;         // "shapes-differ"; no shape makes a client unfit then
};
// The network's shape of a row and number of classes are those of more than half of the clients
// that say theirs and for which `counts` holds.
MemberFit judge_members(const MemberNeeds& needs, std::span<const store::Client> clients,
                        const std::function<bool(const std::string& name)>& counts);

}  // namespace starling::coordinator

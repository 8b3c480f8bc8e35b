// SPDX-License-Identifier: Apache-2.0
// What an operator should know of a job that is accepted all the same.
#pragma once

#include <string>
#include <vector>

#include "coordinator/job/job.h"
#include "coordinator/job/simulated_world.h"
#include "coordinator/machine/client_table.h"

namespace starling::coordinator {

// Whole sentences, by what the clients said when they last connected. Requires: the job is valid.
std::vector<std::string> job_warnings(
    const Job& job, const ClientTable& clients,
    const strategy::Catalogue& strategies = strategy::builtin_strategies());

// The part that no client decides: keys without effect, and a bound on norms that differ. They are
// no errors, because one file may serve several strategies, and `simulate` as well as the service.
std::vector<std::string> warnings_of_keys(
    const Job& job, const strategy::Catalogue& strategies = strategy::builtin_strategies());

// Keys of a simulated network and its nodes that have no effect on a federation, and what of the
// job the simulation never comes to.
std::vector<std::string> warnings_of_world(const Job& job, WorldOptions world);

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// What an operator should know of a job that is accepted all the same.
#pragma once

#include <string>
#include <vector>

#include "coordinator/client_table.h"
#include "coordinator/job.h"

namespace starling::coordinator {

// Whole sentences, by what the clients said when they last connected.
std::vector<std::string> job_warnings(const Job& job, const ClientTable& clients);

}  // namespace starling::coordinator

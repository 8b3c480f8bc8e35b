// SPDX-License-Identifier: Apache-2.0
// What decides the bits of a simulated federated run: it is gone on with where all of it is the
// same.
#pragma once

#include <span>

#include "coordinator/rounds/run_context.h"
#include "coordinator/simulation/simulate.h"
#include "core/base/digest.h"
#include "core/client/run_data.h"

namespace starling::coordinator {

// Of the settings, the program's version, the instruction set, and what data sets, models and other
// files said when the run was prepared.
Sha256Digest identity_of(const RunContext& context, const SimulateOptions& options,
                         std::span<const client::ClientData> holdings);

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// The gossip network that a job falls back to while its coordinator is gone, as the job says it:
// D-PSGD on the job's topology with the job's model and training. Schedule and warm-up count in
// rounds of the job (gossip/fallback/fallback_pace.h).
#pragma once

#include "coordinator/job/job.h"
#include "gossip/fallback/fallback_terms.h"
#include "gossip/training/options.h"

namespace starling::coordinator {

// "topology-spec", "algorithm-topology", "setting-invalid"; whether the number of clients fits the
// topology nobody knows yet.
[[nodiscard]] Result<void> validate_fallback(const Job& job);

// Requires: the job has a fallback and the shape of its data.
gossip::NetOptions fallback_options(const Job& job);
gossip::FallbackTerms fallback_terms(RunId run, const Job& job);

}  // namespace starling::coordinator

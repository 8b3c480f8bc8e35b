// SPDX-License-Identifier: Apache-2.0
// The files of a run's directory as a Run. They may come from elsewhere, or from a run that was
// broken off: what is wrong is refused with the file and the line.
#pragma once

#include <string_view>

#include "core/base/error.h"
#include "core/report/run.h"

namespace starling::report {

// `summary`: summary.json of a simulation; `metrics`: metrics.jsonl, an object a line. Members that
// are missing or null are not measured; unknown ones are passed over. "bad-run" where the text is
// not JSON, a member has the wrong type, a number is not finite, a line has no step or one before
// that of the line above.
[[nodiscard]] Result<Run> parse_simulation(std::string_view summary, std::string_view metrics);

// run.json of a coordinator, which is also the JSON of `run show`. An evaluation a committed round;
// bytes are summed over all attempts, both ways. `seconds` of rounds and of evaluations by clients
// are wall time and are summed; `virtual_seconds` of a round, where it stands there, is the virtual
// time at its end, before that evaluation.
[[nodiscard]] Result<Run> parse_federated_run(std::string_view text);
// Whether it is one, of the two.
bool is_federated_run(std::string_view text);

}  // namespace starling::report

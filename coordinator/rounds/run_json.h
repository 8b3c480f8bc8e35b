// SPDX-License-Identifier: Apache-2.0
// The JSON of `run show` and run.json, and what a replay reads of it.
#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/machine/coordinator_events.h"
#include "coordinator/machine/round_machine.h"
#include "core/store/run_store.h"

namespace starling::coordinator {

// The `program` in a simulation's run.json; of a service there is none.
inline constexpr const char* kSimulateProgram = "starling-coordinator simulate";

// The JSON of `run show` (see design: id, name, state, seed, rounds: [...]); of the run also
// all its settings, why it `stopped_early` and the `best_round` with the metric that makes it the
// best, and of each round what came of the evaluation of its model by clients (`federated_...`,
// null where there was none).
boost::json::value run_to_json(const store::Run& run, const std::vector<store::RoundRecord>& rounds,
                               const std::vector<store::RoundRecord>& evaluations = {});

// What the open phase of the run has counted and moved so far. The store learns the bytes now and
// then, the rest at the phase's end.
void add_progress(const RoundMachine& phase, boost::json::value& run);

// What a replay needs of such a JSON.
struct RecordedRun {
  std::uint64_t seed = 0;
  Replay replay;                        // names in order
  std::map<Round, std::string> models;  // SHA-256 in hex, by committed round
  std::string instruction_set;          // that trained; empty: unknown, as of a real run's devices
  std::optional<double> hold_out;       // of a simulation, where its clients held rows out
};
// "bad-replay" where the text is no recorded run.
[[nodiscard]] Result<RecordedRun> parse_recorded_run(std::string_view run_json);

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// A run's directory, as `starling-gossip simulate --out` (summary.json, metrics.jsonl,
// topology.svg) or `starling-coordinator simulate --out` (run.json) wrote it, and the page in it.
#pragma once

#include <filesystem>

#include "core/base/error.h"
#include "core/report/run.h"

namespace starling::report {

// Stands in the directory of a simulated run from its beginning to its end: a summary.json or
// run.json as far as it goes.
inline constexpr const char* kUnfinishedFile = "unfinished.json";
// Beside it, once the run's state has been saved.
inline constexpr const char* kCheckpointFile = "checkpoint.state";

// Of an unfinished run, what is there so far. "no-run" where the directory holds neither; "bad-run"
// as parse_simulation(), and where a file of it is missing or cannot be read. A topology.svg that
// is missing or above 4 MB is left out.
[[nodiscard]] Result<Run> read_run(const std::filesystem::path& directory);

// Whether it ended as it should: a coordinator leaves a record of failed runs, too.
bool is_whole(const Run& run);

// Reads the directory and writes its report.html.
[[nodiscard]] Result<void> write_report(const std::filesystem::path& run_directory);

// The same before summary.json or run.json stands there, which says that a run is whole and so
// comes last: `record` is its text.
[[nodiscard]] Result<void> write_report(const std::filesystem::path& run_directory, RunKind kind,
                                        std::string_view record);

}  // namespace starling::report

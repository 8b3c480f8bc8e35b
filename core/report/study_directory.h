// SPDX-License-Identifier: Apache-2.0
// The directory of a study, with a run's directory for each of its runs, and the page about them
// with its curves as files.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/report/run_directory.h"

namespace starling::report {

struct StudyRuns {
  std::vector<Run> runs;          // by the settings that differ, numbers as numbers
  std::vector<LeftOut> left_out;  // whose runs failed, have not finished or have not begun
};

// Whether the directory itself is that of a run, ended or not.
bool holds_run(const std::filesystem::path& directory);

// The finished runs in the directories in `directory`, or where none is finished, what the
// unfinished ones have measured. "no-run" where there is none; else as read_run().
[[nodiscard]] Result<StudyRuns> read_study(const std::filesystem::path& directory);

struct CurveFormats {
  bool csv = false;
  bool svg = false;
};
// Where the curves of a page stand: the directory curves/ beside it.
std::filesystem::path curves_beside(const std::filesystem::path& page);

// Writes the page, and the curves into their directory, in place of those of an
// earlier page.
[[nodiscard]] Result<void> write_comparison(std::span<const Run> runs,
                                            const std::filesystem::path& page, CurveFormats formats,
                                            std::span<const LeftOut> left_out = {});

}  // namespace starling::report

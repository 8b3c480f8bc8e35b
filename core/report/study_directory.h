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
  std::vector<Run> runs;  // by the settings that differ, numbers as numbers
  // Whose runs failed, have not finished, have not begun or cannot be read.
  std::vector<LeftOut> left_out;
  std::vector<LeftOut> damaged;  // shown all the same: a file that the page does not need
};

// The beginning of a LeftOut's reason.
inline constexpr const char* kUnreadable = "cannot be read: ";

// Which other files of a finished run have changed: "presence.csv has changed since the run ended",
// "" of none. "bad-run": one that a page is made of has.
[[nodiscard]] Result<std::string> check_unchanged(const std::filesystem::path& directory);

// Whether the directory itself is that of a run, ended or not.
bool holds_run(const std::filesystem::path& directory);

// The finished runs in the directories in `directory`, or where none is finished, what the
// unfinished ones have measured. "no-run" where there is none; as read_run() where none can be
// read.
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

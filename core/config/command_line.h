// SPDX-License-Identifier: Apache-2.0
// What all programs share on the command line: exit codes, how an error is said, --format, and
// parsing with a suggestion where a command or flag is mistyped.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace CLI {
class App;
}

namespace starling::config {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kTimedOut = 3,
  kNotConnected = 4,  // cannot connect, or not authorised
};

enum class OutputFormat { kText, kJson };

// From the error's category.
ExitCode exit_code(const Error& error);

// An Error for wrong use that only the program itself can see.
Error usage_error(std::string message);

// Prints "error: SENTENCE" to `err`; returns the exit code as main does.
int report(const Error& error, std::ostream& err);
// 0, or the error as above.
int report(const Result<void>& result, std::ostream& err);

// The command's exit code; where memory runs out, a sentence and kFailed.
int run(const std::function<int()>& command, std::ostream& err);

// --help on every level, --version on the first ("PROGRAM VERSION"); wide enough columns.
void set_up(CLI::App& app, std::string_view version);

// --format text|json
void add_format(CLI::App& app, OutputFormat& format);

// --seeds and --sweep of commands that can run a study; core/study reads the texts.
struct StudyFlags {
  std::optional<std::string> seeds;
  std::vector<std::string> sweeps;

  bool wanted() const { return seeds || !sweeps.empty(); }
};
void add_study_flags(CLI::App& app, StudyFlags& flags);

// Parses. Nothing: go on. Otherwise the exit code to end with: 0 after --help or --version (printed
// to `out`), kUsage after a sentence to `err` that names the nearest command or flag.
[[nodiscard]] std::optional<int> parse(CLI::App& app, std::span<char* const> arguments,
                                       std::ostream& out, std::ostream& err);

}  // namespace starling::config

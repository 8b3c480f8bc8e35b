// SPDX-License-Identifier: Apache-2.0
// The project's own files as text, for the tests that hold the code against its rules.
#pragma once

#include <cstddef>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace starling::testing {

struct SourceFile {
  std::string path;  // from the root, with '/'
  std::string text;
};

struct Violation {
  std::string path;
  std::size_t line = 0;  // 1-based
  std::string rule;      // a sentence

  friend bool operator==(const Violation&, const Violation&) = default;
};
std::ostream& operator<<(std::ostream& out, const Violation& violation);  // "file:line: rule"

// Every C++, CMake, Cap'n Proto and script file below `root`, in order of path; what a build or
// a checkout leaves there (`build`, `out`, `.git`, `.cache`) is not read.
std::vector<SourceFile> read_source_tree(const std::filesystem::path& root);

bool is_header(std::string_view path);
bool is_cpp(std::string_view path);  // a header or a source

// The same text, each character of a comment or a raw string replaced by a space; lines stay.
std::string without_comments(std::string_view cpp);
// Likewise, with the content of every string and character literal replaced as well.
std::string without_literals(std::string_view cpp);

// The 1-based line of the character at `offset`.
std::size_t line_of(std::string_view text, std::size_t offset);

}  // namespace starling::testing

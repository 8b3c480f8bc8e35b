// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>

namespace starling::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kForeign = {"build", "out", ".git", ".cache",
                                                      "__pycache__"};
constexpr std::array<std::string_view, 6> kEndings = {".h",  ".cpp",   ".cmake",
                                                      ".sh", ".capnp", ".py"};

bool is_source(std::string_view path) {
  if (path.ends_with("CMakeLists.txt") || path.ends_with(".cmake.in") || path == ".ci/run") {
    return true;
  }
  return std::ranges::any_of(kEndings, [&](auto ending) { return path.ends_with(ending); });
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Replaces what lies in [from, to) and is no line break.
void blank(std::string& text, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < std::min(to, text.size()); ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

std::size_t after(std::string_view text, std::string_view what, std::size_t from) {
  std::size_t at = text.find(what, from);
  return at == std::string_view::npos ? text.size() : at + what.size();
}

// The end of the ordinary literal that opens at `at` with its quote; a line break ends it too.
std::size_t literal_end(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at] || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

std::size_t raw_string_end(std::string_view text, std::size_t quote) {
  std::size_t parenthesis = text.find('(', quote);
  if (parenthesis == std::string_view::npos) return text.size();
  std::string closing = ")" + std::string(text.substr(quote + 1, parenthesis - quote - 1)) + "\"";
  return after(text, closing, parenthesis);
}

// Whether the apostrophe at `at` stands between digits, as in 1'000.
bool is_digit_separator(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && (is_word(text[begin - 1]) || text[begin - 1] == '\'')) --begin;
  return begin < at && std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
}

std::string stripped(std::string_view cpp, bool with_literals) {
  std::string text(cpp);
  for (std::size_t i = 0; i < cpp.size();) {
    std::size_t end = i + 1;
    if (cpp.substr(i, 2) == "//") {
      end = std::min(cpp.find('\n', i), cpp.size());
      blank(text, i, end);
    } else if (cpp.substr(i, 2) == "/*") {
      end = after(cpp, "*/", i + 2);
      blank(text, i, end);
    } else if (cpp[i] == '"' && i > 0 && cpp[i - 1] == 'R') {
      end = raw_string_end(cpp, i);
      blank(text, i + 1, end - 1);
    } else if (cpp[i] == '"' || (cpp[i] == '\'' && !is_digit_separator(cpp, i))) {
      end = literal_end(cpp, i);
      if (with_literals) blank(text, i + 1, end - 1);
    }
    i = end;
  }
  return text;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Violation& violation) {
  return out << violation.path << ':' << violation.line << ": " << violation.rule;
}

std::vector<SourceFile> read_source_tree(const fs::path& root) {
  std::vector<SourceFile> files;
  for (auto entry = fs::recursive_directory_iterator(root);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (std::ranges::count(kForeign, entry->path().filename().string()) > 0) {
      entry.disable_recursion_pending();
      continue;
    }
    std::string path = entry->path().lexically_relative(root).generic_string();
    if (!entry->is_regular_file() || !is_source(path)) continue;
    std::ifstream stream(entry->path(), std::ios::binary);
    files.push_back({path, {std::istreambuf_iterator<char>(stream), {}}});
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

bool is_header(std::string_view path) { return path.ends_with(".h"); }
bool is_cpp(std::string_view path) { return is_header(path) || path.ends_with(".cpp"); }

std::string without_comments(std::string_view cpp) { return stripped(cpp, false); }
std::string without_literals(std::string_view cpp) { return stripped(cpp, true); }

std::size_t line_of(std::string_view text, std::size_t offset) {
  auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(offset, text.size()));
  return 1 + static_cast<std::size_t>(std::count(text.begin(), end, '\n'));
}

}  // namespace starling::testing

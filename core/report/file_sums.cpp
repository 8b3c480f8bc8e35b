// SPDX-License-Identifier: Apache-2.0
#include "core/report/file_sums.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "core/base/durable_file.h"

namespace starling::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSumsBytesMax = std::size_t{16} << 20;
constexpr std::size_t kHexDigits = 64;

std::string line_of(const std::string& hex, const std::string& name) {
  return fmt::format("{}  {}\n", hex, name);
}

// Another directory's files are no concern of the run.
bool is_within(const fs::path& name) {
  if (name.empty() || name.is_absolute()) return false;
  for (const fs::path& part : name) {
    if (part == "..") return false;
  }
  return true;
}

}  // namespace

bool add_file(Sha256& digest, const fs::path& file) {
  std::ifstream content(file, std::ios::binary);
  std::vector<char> piece(std::size_t{1} << 20);
  while (content) {
    content.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    digest.update(as_bytes({piece.data(), static_cast<std::size_t>(content.gcount())}));
  }
  return content.eof();
}

std::string sum_of(const fs::path& file) {
  std::error_code ignored;
  Sha256 digest;
  if (!fs::is_regular_file(file, ignored) || !add_file(digest, file)) return {};
  return std::move(digest).finish().hex();
}

Result<void> write_sums(const fs::path& directory, std::span<const std::string> names,
                        const std::string& record_name, std::string_view record) {
  std::string text;
  for (const std::string& name : names) {
    const std::string sum = sum_of(directory / name);
    if (!sum.empty()) text += line_of(sum, name);
  }
  text += line_of(sha256(as_bytes(record)).hex(), record_name);
  return write_durably(directory / kSumsFile, as_bytes(text));
}

std::vector<std::string> changed_files(const fs::path& directory) {
  std::vector<std::string> changed;
  const auto text = read_text_file(directory / kSumsFile, kSumsBytesMax);
  if (!text) return changed;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.size() > kHexDigits + 2 ? line.substr(kHexDigits + 2) : "";
    if (!is_within(name)) return {kSumsFile};
    const std::string sum = sum_of(directory / name);
    if (!sum.empty() && sum != line.substr(0, kHexDigits)) changed.push_back(name);
  }
  return changed;
}

}  // namespace starling::report

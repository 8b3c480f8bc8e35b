// SPDX-License-Identifier: Apache-2.0
#include "core/report/file_sums.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
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

// Sums by names, which are "" of a line that is none of this file's.
std::map<std::string, std::string> parse_lines(const std::string& text) {
  std::map<std::string, std::string> sums;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool is_whole = line.size() > kHexDigits + 2;
    sums[is_whole ? line.substr(kHexDigits + 2) : ""] = line.substr(0, kHexDigits);
  }
  return sums;
}

// Every run has a line for its record, which is the last, and a simulated one for these: of one
// that is gone its file would be checked no more.
bool lacks_lines(const fs::path& directory, const std::map<std::string, std::string>& sums) {
  std::error_code ignored;
  const auto lacks = [&](const char* name) {
    return !sums.contains(name) && fs::exists(directory / name, ignored);
  };
  return lacks("run.json") || lacks("summary.json") || lacks("metrics.jsonl") ||
         lacks("model.safetensors");
}

// What another content changes, and a copy too: inode, size and both times of change, of which one
// cannot be set back.
// "" of a file that changed just now, since a change within the same tick would not be seen.
std::string version_of(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return {};
  const std::timespec& at = found.st_mtim;
  if (std::max(at.tv_sec, found.st_ctim.tv_sec) + 1 >= std::time(nullptr)) return {};
  const std::timespec& changed = found.st_ctim;
  return fmt::format("{}-{}-{}.{:09}-{}.{:09}", found.st_ino, found.st_size, at.tv_sec, at.tv_nsec,
                     changed.tv_sec, changed.tv_nsec);
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
  if (!text && text.error().code() == "file-missing") return changed;
  const auto sums = parse_lines(text ? *text : "");
  if (sums.empty()) return {kSumsFile};
  if (lacks_lines(directory, sums)) changed.emplace_back(kSumsFile);
  const auto kept = read_text_file(directory / kCheckedFile, kSumsBytesMax);
  const std::string known_text = kept ? *kept : "";
  const auto known = parse_lines(known_text);
  std::string checked;
  for (const auto& [name, sum_at_end] : sums) {
    if (!is_within(name)) return {kSumsFile};
    std::error_code ignored;
    if (fs::status(directory / name, ignored).type() == fs::file_type::not_found) continue;
    const std::string version = version_of(directory / name);
    const std::string key = version + " " + name;
    const auto found = version.empty() ? known.end() : known.find(key);
    const std::string sum = found == known.end() ? sum_of(directory / name) : found->second;
    if (sum != sum_at_end) changed.push_back(name);
    if (!sum.empty() && !version.empty()) checked += line_of(sum, key);
  }
  // Where it cannot be written, the files are hashed again the next time.
  if (checked != known_text) (void)write_durably(directory / kCheckedFile, as_bytes(checked));
  return changed;
}

}  // namespace starling::report

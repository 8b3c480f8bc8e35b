// SPDX-License-Identifier: Apache-2.0
#include "core/study/input_digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/data/load.h"
#include "core/report/file_sums.h"

namespace starling::study {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kPathKeys = {"network.links", "nodes.speeds",
                                                       "nodes.presence", "model.initial"};
constexpr std::array<std::string_view, 2> kDataKeys = {"data.dataset", "evaluate.dataset"};

bool is_one_of(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

// "csv:rows.csv", "idx:directory:test"
fs::path path_of_data(const std::string& value) {
  const auto spec = data::DatasetSpec::parse(value);
  if (!spec || spec->kind == data::DatasetKind::kSynthetic) return {};
  return spec->path;
}

// "file:graph.txt,directed=true"
fs::path path_of_graph(const std::string& value) {
  if (!value.starts_with("file:")) return {};
  const std::string rest = value.substr(value.find(':') + 1);
  return rest.substr(0, rest.find(','));
}

bool is_executable_binary(const fs::path& file) {
  std::array<char, 4> begin{};
  std::ifstream(file, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) ==
         "\x7f"
         "ELF";
}

// "python3 'my train.py' --log out.txt": what comes later the trainer may write. Quotes are left
// out, and words with blanks are not found.
fs::path script_of_command(const std::string& command) {
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '\'' || c == '"'; });
    std::error_code ignored;
    if (fs::is_regular_file(word, ignored) && !is_executable_binary(word)) return word;
  }
  return {};
}

fs::path path_in(const Settings::value_type& setting) {
  const auto& [key, value] = setting;
  if (key == "trainer.command") return script_of_command(value);
  if (is_one_of(kPathKeys, key)) return value;
  if (is_one_of(kDataKeys, key)) return path_of_data(value);
  if (key == "topology.spec") return path_of_graph(value);
  return {};
}

std::string digest_of_directory(const fs::path& path) {
  std::error_code ignored;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.is_regular_file(ignored)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  Sha256 digest;
  for (const fs::path& file : files) {
    const std::uintmax_t bytes = fs::file_size(file, ignored);
    digest.update(as_bytes(fmt::format("{} {}\n", file.filename().string(), bytes)));
    if (!report::add_file(digest, file)) digest.update(as_bytes("cannot be read\n"));
  }
  return std::move(digest).finish().hex();
}

// "": it cannot be read.
std::string digest_of(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? digest_of_directory(path) : report::sum_of(path);
}

}  // namespace

Settings InputDigests::of(const Settings& settings) {
  Settings digests;
  for (const auto& setting : settings) {
    const fs::path path = path_in(setting);
    const auto known = known_.find(path);
    const std::string& digest =
        known == known_.end() ? known_[path] = digest_of(path) : known->second;
    if (!digest.empty()) digests.emplace_back(setting.first, digest);
  }
  return digests;
}

}  // namespace starling::study

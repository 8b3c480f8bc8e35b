// SPDX-License-Identifier: Apache-2.0
#include "core/study/input_digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/durable_file.h"
#include "core/data/load.h"

namespace starling::study {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBytesMax = std::size_t{1} << 30;

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

// "python3 'my train.py' --fast": quotes are left out, and words with blanks are not found.
std::vector<fs::path> files_of_command(const std::string& command) {
  std::vector<fs::path> files;
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '\'' || c == '"'; });
    std::error_code ignored;
    if (fs::is_regular_file(word, ignored)) files.emplace_back(word);
  }
  return files;
}

std::vector<fs::path> paths_in(const Settings::value_type& setting) {
  const auto& [key, value] = setting;
  if (key == "trainer.command") return files_of_command(value);
  fs::path path;
  if (is_one_of(kPathKeys, key)) path = value;
  if (is_one_of(kDataKeys, key)) path = path_of_data(value);
  if (key == "topology.spec") path = path_of_graph(value);
  if (path.empty()) return {};
  return {path};
}

std::string digest_of_directory(const fs::path& path) {
  std::error_code ignored;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.is_regular_file(ignored)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  Sha256 digest;
  std::size_t left = kBytesMax;
  for (const fs::path& file : files) {
    const std::uintmax_t bytes = fs::file_size(file, ignored);
    digest.update(as_bytes(fmt::format("{} {}\n", file.filename().string(), bytes)));
    const auto content = read_file(file, left);
    if (!content) continue;
    digest.update(*content);
    left -= content->size();
  }
  return std::move(digest).finish().hex();
}

// "": it cannot be read.
std::string digest_of(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return digest_of_directory(path);
  if (!fs::is_regular_file(path, ignored)) return {};
  const auto content = read_file(path, kBytesMax);
  return content ? sha256(*content).hex() : std::string();
}

}  // namespace

Settings InputDigests::of(const Settings& settings) {
  Settings digests;
  for (const auto& setting : settings) {
    const std::vector<fs::path> paths = paths_in(setting);
    std::string all;
    for (const fs::path& path : paths) {
      const auto known = known_.find(path);
      all += known == known_.end() ? known_[path] = digest_of(path) : known->second;
    }
    if (paths.size() > 1) all = sha256(as_bytes(all)).hex();
    if (!all.empty()) digests.emplace_back(setting.first, all);
  }
  return digests;
}

}  // namespace starling::study

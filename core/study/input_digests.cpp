// SPDX-License-Identifier: Apache-2.0
#include "core/study/input_digests.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/digest.h"
#include "core/base/durable_file.h"

namespace starling::study {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

constexpr std::array<std::string_view, 3> kPathKeys = {"network.links", "nodes.speeds",
                                                       "nodes.presence"};
// "file:graph.txt", "csv:rows.csv"
constexpr std::array<std::string_view, 3> kSchemeKeys = {"topology.spec", "data.dataset",
                                                         "evaluate.dataset"};

std::filesystem::path path_in(const Settings::value_type& setting) {
  const auto& [key, value] = setting;
  if (std::ranges::find(kPathKeys, key) != kPathKeys.end()) return value;
  if (std::ranges::find(kSchemeKeys, key) == kSchemeKeys.end()) return {};
  const std::size_t colon = value.find(':');
  if (colon == value.npos) return {};
  const std::string rest = value.substr(colon + 1);
  return key == "topology.spec" ? rest.substr(0, rest.find(',')) : rest;  // ",directed=true"
}

std::string digest_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  const auto text = read_text_file(path, kFileBytesMax);
  return text ? sha256(as_bytes(*text)).hex() : std::string();
}

}  // namespace

Settings InputDigests::of(const Settings& settings) {
  Settings digests;
  for (const auto& setting : settings) {
    const std::filesystem::path path = path_in(setting);
    if (path.empty()) continue;
    const auto known = known_.find(path);
    const std::string digest =
        known == known_.end() ? known_[path] = digest_of(path) : known->second;
    if (!digest.empty()) digests.emplace_back(setting.first, digest);
  }
  return digests;
}

}  // namespace starling::study

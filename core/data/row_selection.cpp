// SPDX-License-Identifier: Apache-2.0
#include "core/data/row_selection.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/check.h"

namespace starling::data {
namespace {

Error too_large(const std::string& name, const std::string& what, std::uint64_t limit) {
  return rejected("dataset-too-large", name + " has " + what + "; at most " +
                                           std::to_string(limit) + " are allowed here");
}

}  // namespace

Result<void> check_rows(const std::string& name, std::uint64_t rows, const LoadOptions& options) {
  if (rows == 0) return rejected("dataset-malformed", name + " has no rows");
  const std::uint64_t rows_max =
      std::min<std::uint64_t>(options.rows_max, std::numeric_limits<std::uint32_t>::max());
  if (rows > rows_max) return too_large(name, std::to_string(rows) + " rows", rows_max);
  return {};
}

Result<void> check_bytes(const std::string& name, std::uint64_t rows, std::uint64_t features,
                         std::uint64_t bytes_each, const LoadOptions& options) {
  const std::uint64_t row_bytes = features * bytes_each;
  if (rows == 0 || row_bytes <= options.bytes_max / rows) return {};
  return too_large(
      name,
      std::to_string(rows) + " rows of " + std::to_string(row_bytes) + " bytes, too many bytes",
      options.bytes_max);
}

Result<void> count_classes(const std::string& name, Dataset::Content& content,
                           const LoadOptions& options) {
  const auto largest = std::ranges::max_element(content.labels);
  content.classes = options.classes > 0 ? options.classes : *largest + 1;
  if (*largest < content.classes) return {};
  return rejected("label-out-of-range",
                  name + ": row " + std::to_string(largest - content.labels.begin() + 1) +
                      " has the label " + std::to_string(*largest) + ", but the model has " +
                      std::to_string(options.classes) + " classes (0 is the first)");
}

Result<std::vector<std::uint32_t>> choose_rows(const Dataset::Content& content,
                                               const LoadOptions& options) {
  const std::size_t count = content.labels.size();
  if (!options.select) {
    std::vector<std::uint32_t> all(count);
    std::iota(all.begin(), all.end(), 0U);
    return all;
  }
  STARLING_ASSIGN(
      std::vector<std::uint32_t> chosen,
      options.select({content.labels, content.classes, content.groups, content.group_names}));
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    STARLING_CHECK(chosen[i] < count && (i == 0 || chosen[i] > chosen[i - 1]));
  }
  return chosen;
}

void keep_rows(Dataset::Content& content, const std::vector<std::uint32_t>& chosen) {
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    content.labels[i] = content.labels[chosen[i]];
    if (!content.groups.empty()) content.groups[i] = content.groups[chosen[i]];
  }
  content.labels.resize(chosen.size());
  if (!content.groups.empty()) content.groups.resize(chosen.size());
}

}  // namespace starling::data

// SPDX-License-Identifier: Apache-2.0
#include "core/sim/value_file.h"

#include <algorithm>
#include <charconv>

#include "core/base/list_some.h"
#include "core/base/nearest_name.h"
#include "core/base/trimmed.h"

namespace starling::sim {
namespace {

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;

std::string list(const std::vector<std::string_view>& names) {
  return list_some(names, names.size(), [](std::string_view name) { return name; });
}

}  // namespace

Result<ValueFile> ValueFile::open(const std::filesystem::path& path, std::string key,
                                  const std::vector<std::string_view>& required,
                                  const std::vector<std::string_view>& optional) {
  auto records = data::CsvRecords::open(path, kFileBytesMax);
  if (!records) return records.error().within(key);
  ValueFile file(std::move(key), std::move(*records));
  auto header = file.records_.next(file.columns_);
  if (!header) return header.error().within(file.key_);
  for (std::string& column : file.columns_) column = trimmed(column);
  std::vector<std::string_view> known = required;
  known.insert(known.end(), optional.begin(), optional.end());
  const auto count = [&](std::string_view name) { return std::ranges::count(file.columns_, name); };
  for (const std::string& column : file.columns_) {
    if (std::ranges::find(known, column) == known.end()) {
      return file.malformed("the columns are " + list(known) + ", and '" + printable(column) +
                            "' is none of them");
    }
    if (count(column) > 1) return file.malformed("two columns are called '" + column + "'");
  }
  for (const std::string_view column : required) {
    if (count(column) == 0) {
      return file.malformed("the first line has no column '" + std::string(column) +
                            "'; the columns are " + list(known));
    }
  }
  return file;
}

Result<bool> ValueFile::next() {
  auto more = records_.next(fields_);
  if (!more) return more.error().within(key_);
  if (!*more || fields_.size() == columns_.size()) return more;
  return malformed("there are " + std::to_string(fields_.size()) + " fields, and " +
                   std::to_string(columns_.size()) + " columns");
}

std::string_view ValueFile::text(std::string_view column) const {
  const auto found = std::ranges::find(columns_, column);
  if (found == columns_.end()) return {};
  return trimmed(fields_[static_cast<std::size_t>(found - columns_.begin())]);
}

Result<std::uint32_t> ValueFile::node(std::string_view column, std::uint32_t nodes) const {
  const std::string_view said = text(column);
  std::uint32_t number = 0;
  const auto read = std::from_chars(said.data(), said.data() + said.size(), number);
  const bool whole = read.ec == std::errc{} && read.ptr == said.data() + said.size();
  if (whole && number < nodes) return number;
  return wrong(column, "is not a node; nodes count from 0 to " + std::to_string(nodes - 1));
}

Result<std::optional<double>> ValueFile::value(std::string_view column, Unit unit) const {
  const std::string_view said = text(column);
  if (said.empty()) return std::optional<double>();
  const auto read = Distribution::parse(said, unit);
  if (read && read->constant()) return std::optional(read->least());
  constexpr std::string_view kForms[] = {"is not a duration; write it as 20ms",
                                         "is not a rate; write it as 10Mbit/s or 1GB/s",
                                         "is not a number that is 0 or more"};
  return wrong(column, kForms[static_cast<std::size_t>(unit)]);
}

Error ValueFile::wrong(std::string_view column, std::string_view why) const {
  return malformed("column '" + std::string(column) + "': '" + printable(text(column)) + "' " +
                   std::string(why));
}

Error ValueFile::malformed(const std::string& why) const {
  return wrong_setting("values-malformed", key_ + ": " + records_.name() + ", line " +
                                               std::to_string(records_.line()) + ": " + why);
}

}  // namespace starling::sim

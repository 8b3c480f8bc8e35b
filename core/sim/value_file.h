// SPDX-License-Identifier: Apache-2.0
// Values of nodes and links from a CSV file: a header row of known columns, in any order, then a
// row for each node or link. An empty field says nothing. Sentences name file, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/csv_reader.h"
#include "core/sim/distribution.h"

namespace starling::sim {

class ValueFile {
 public:
  // The file must have the columns of `required` and may have those of `optional`. Fails with
  // "values-malformed", or as CsvRecords; sentences begin with `key`.
  [[nodiscard]] static Result<ValueFile> open(const std::filesystem::path& path, std::string key,
                                              const std::vector<std::string_view>& required,
                                              const std::vector<std::string_view>& optional);

  // The next row, or false at the end.
  [[nodiscard]] Result<bool> next();
  // A field of the row, without spaces around it; empty where the file has no such column.
  std::string_view text(std::string_view column) const;
  // A number from 0 and below `nodes`.
  [[nodiscard]] Result<std::uint32_t> node(std::string_view column, std::uint32_t nodes) const;
  // As Distribution::parse reads a constant; nothing where the field is empty.
  [[nodiscard]] Result<std::optional<double>> value(std::string_view column, Unit unit) const;
  // Of this row and column.
  Error wrong(std::string_view column, std::string_view why) const;

 private:
  ValueFile(std::string key, data::CsvRecords records)
      : key_(std::move(key)), records_(std::move(records)) {}
  Error malformed(const std::string& why) const;

  std::string key_;
  data::CsvRecords records_;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
};

}  // namespace starling::sim

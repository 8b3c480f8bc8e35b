// SPDX-License-Identifier: Apache-2.0
// Comma-separated values after RFC 4180: fields may be quoted, then hold commas, line ends and
// doubled quotes; lines end in LF or CRLF. Semicolons or tabs may stand for the commas. Stricter
// readers refuse what this one does, with line and column: a quote inside an unquoted field, text
// after a closing quote, a row of another length.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/data/load.h"

namespace starling::data {

// One record after the other; empty lines are passed over. What separates the fields is the comma,
// semicolon or tab that the first record has most of outside quotes.
class CsvRecords {
 public:
  // Fails with "dataset-missing" or "dataset-unreadable".
  [[nodiscard]] static Result<CsvRecords> open(const std::filesystem::path& path,
                                               std::uint64_t bytes_max);

  // The next record's fields, or false at the end. Fails with "dataset-malformed" or
  // "dataset-too-large".
  [[nodiscard]] Result<bool> next(std::vector<std::string>& fields);
  // Where the last record began, from 1.
  std::uint64_t line() const { return record_line_; }
  const std::string& name() const { return name_; }
  char separator() const { return separator_; }

 private:
  CsvRecords(std::string name, std::filebuf file);

  void find_separator();
  int get();
  int peek() { return file_.sgetc(); }
  [[nodiscard]] Result<void> read_quoted(std::string& field, std::size_t column);
  // Reads one field and says whether the record goes on.
  [[nodiscard]] Result<bool> read_field(std::string& field, std::size_t column);
  [[nodiscard]] Result<bool> end_field(std::size_t column);
  Error malformed(std::size_t column, const std::string& why) const;

  std::string name_;
  std::filebuf file_;
  char separator_ = ',';
  std::uint64_t line_ = 1;
  std::uint64_t record_line_ = 0;
};

// The column `label`, else the last, is the class: integers from 0, or texts that are numbered in
// sorted order. options.group_column is kept out of the features; all others must be finite
// numbers. "dataset-header" where the first line does not read as names: without them, columns
// cannot be told from rows, or from each other.
[[nodiscard]] Result<Dataset::Content> read_csv(const std::filesystem::path& path,
                                                const LoadOptions& options);

}  // namespace starling::data

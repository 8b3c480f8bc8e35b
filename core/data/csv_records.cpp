// SPDX-License-Identifier: Apache-2.0
// The grammar of CSV; csv_reader.cpp gives its fields a meaning.
#include <algorithm>
#include <array>

#include "core/data/csv_reader.h"

namespace starling::data {
namespace {

constexpr int kEnd = std::char_traits<char>::eof();
constexpr std::size_t kFieldBytesMax = 1 << 16;
constexpr std::size_t kColumnsMax = 1 << 20;
constexpr std::string_view kSeparators = ",;\t";
constexpr std::size_t kSearchedMax = 1 << 20;  // of the first record, for its separator

}  // namespace

CsvRecords::CsvRecords(std::string name, std::filebuf file)
    : name_(std::move(name)), file_(std::move(file)) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  char start[3] = {};
  const auto count = static_cast<std::size_t>(file_.sgetn(start, sizeof start));
  const bool marked = std::string_view(start, count) == kByteOrderMark;
  const std::streamoff begin = marked ? std::ssize(kByteOrderMark) : 0;
  file_.pubseekpos(begin);
  find_separator();
  file_.pubseekpos(begin);
}

void CsvRecords::find_separator() {
  std::array<std::size_t, kSeparators.size()> found{};
  bool quoted = false;
  bool begun = false;
  for (std::size_t i = 0; i < kSearchedMax; ++i) {
    const int c = file_.sbumpc();
    const bool line_ends = c == '\n' || c == '\r';
    if (c == kEnd || (line_ends && begun && !quoted)) break;
    begun = begun || !line_ends;
    if (c == '"') quoted = !quoted;
    const std::size_t at = kSeparators.find(static_cast<char>(c));
    if (!quoted && at != std::string_view::npos) ++found[at];
  }
  separator_ =
      kSeparators[static_cast<std::size_t>(std::ranges::max_element(found) - found.begin())];
}

Result<CsvRecords> CsvRecords::open(const std::filesystem::path& path, std::uint64_t bytes_max) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return wrong_setting("dataset-missing", "there is no file " + path.string());
  }
  std::filebuf file;
  if (!std::filesystem::is_regular_file(path, code) ||
      file.open(path, std::ios::in | std::ios::binary) == nullptr) {
    return rejected("dataset-unreadable", path.string() + " is not a file that this user may read");
  }
  const std::uint64_t bytes = std::filesystem::file_size(path, code);
  if (bytes > bytes_max) {
    return rejected("dataset-too-large", path.string() + " has " + std::to_string(bytes) +
                                             " bytes; at most " + std::to_string(bytes_max) +
                                             " are allowed here");
  }
  return CsvRecords(path.string(), std::move(file));
}

Error CsvRecords::malformed(std::size_t column, const std::string& why) const {
  return rejected("dataset-malformed", name_ + ", line " + std::to_string(line_) + ", column " +
                                           std::to_string(column + 1) + ": " + why);
}

int CsvRecords::get() {
  const int c = file_.sbumpc();
  if (c == '\n') ++line_;
  return c;
}

Result<bool> CsvRecords::next(std::vector<std::string>& fields) {
  while (peek() == '\n' || peek() == '\r') get();
  record_line_ = line_;
  if (peek() == kEnd) return false;
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == kColumnsMax) return malformed(count, "there are too many columns");
    if (count == fields.size()) fields.emplace_back();
    STARLING_ASSIGN(more, read_field(fields[count], count));
  }
  fields.resize(count);
  return true;
}

Result<bool> CsvRecords::read_field(std::string& field, std::size_t column) {
  field.clear();
  if (peek() == '"') {
    STARLING_TRY(read_quoted(field, column));
    return end_field(column);
  }
  for (int c = peek(); c != separator_ && c != '\n' && c != '\r' && c != kEnd; c = peek()) {
    if (c == '"') return malformed(column, "a quote stands inside a field that is not quoted");
    if (field.size() == kFieldBytesMax) return malformed(column, "the field is too long");
    field.push_back(static_cast<char>(get()));
  }
  return end_field(column);
}

Result<void> CsvRecords::read_quoted(std::string& field, std::size_t column) {
  get();
  for (;;) {
    const int c = get();
    if (c == kEnd) return malformed(column, "the quoted field is never closed");
    if (c == '"') {
      if (peek() != '"') return {};
      get();
    }
    if (field.size() == kFieldBytesMax) return malformed(column, "the quoted field is too long");
    field.push_back(static_cast<char>(c));
  }
}

Result<bool> CsvRecords::end_field(std::size_t column) {
  const int c = peek();
  if (c == separator_) {
    get();
    return true;
  }
  if (c == '\r') {
    get();
    if (peek() != '\n' && peek() != kEnd) {
      return malformed(column, "a carriage return stands alone; lines end in LF or CRLF");
    }
  } else if (c != '\n' && c != kEnd) {
    return malformed(column, "text follows the closing quote");
  }
  get();
  return false;
}

}  // namespace starling::data

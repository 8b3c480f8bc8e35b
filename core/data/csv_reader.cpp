// SPDX-License-Identifier: Apache-2.0
// Two passes over the file: labels and groups first, so that rows can be chosen; then the features
// of the chosen rows.
#include "core/data/csv_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/base/nearest_name.h"
#include "core/base/trimmed.h"
#include "core/base/utf8.h"
#include "core/data/row_selection.h"

namespace starling::data {
namespace {

constexpr std::size_t kClassesMax = 65536;
constexpr const char* kWhichIsTheClass =
    "; the class is the column 'label', or the last one where there is none";

std::optional<double> read_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Texts that repeat, each kept once.
struct TextColumn {
  std::map<std::string, std::uint32_t, std::less<>> ids;
  std::vector<std::uint32_t> rows;  // [rows] id

  void add(std::string_view text) {
    auto at = ids.find(text);
    if (at == ids.end()) at = ids.emplace(text, static_cast<std::uint32_t>(ids.size())).first;
    rows.push_back(at->second);
  }
  std::vector<std::string> sorted_names() const {
    std::vector<std::string> names;
    for (const auto& [name, id] : ids) names.push_back(name);
    return names;
  }
  // rows as positions in sorted_names().
  std::vector<std::uint32_t> sorted_rows() const {
    std::vector<std::uint32_t> rank(ids.size());
    std::uint32_t next = 0;
    for (const auto& [name, id] : ids) rank[id] = next++;
    std::vector<std::uint32_t> result(rows.size());
    std::ranges::transform(rows, result.begin(), [&](std::uint32_t id) { return rank[id]; });
    return result;
  }
};

struct Columns {
  std::vector<std::string> names;
  std::size_t label = 0;
  std::optional<std::size_t> group;

  std::size_t features() const { return names.size() - (group ? 2 : 1); }
  bool is_feature(std::size_t column) const { return column != label && column != group; }
};

// Some writers call the columns 0, 1, 2, ... or 1, 2, 3, ...
bool are_counted(const std::vector<std::string_view>& numbers) {
  if (numbers.size() < 3) return false;  // rows may begin like this
  const auto first = read_number(numbers.front());
  if (*first != 0 && *first != 1) return false;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (read_number(numbers[i]) != *first + static_cast<double>(i)) return false;
  }
  return true;
}

// Names may be numbers, such as years; but with numbers and texts where the row below has them, the
// first line is a row.
Result<void> check_is_header(const std::string& file, std::uint64_t bytes_max,
                             const std::vector<std::string>& names) {
  const auto is_number = [](const std::string& text) { return read_number(text).has_value(); };
  std::vector<std::string_view> numbers;
  std::ranges::copy_if(names, std::back_inserter(numbers), is_number);
  if (numbers.empty()) return {};
  STARLING_ASSIGN(CsvRecords records, CsvRecords::open(file, bytes_max));
  std::vector<std::string> row;
  STARLING_TRY(records.next(row));  // the header
  STARLING_ASSIGN(const bool present, records.next(row));
  const bool alike = present && std::ranges::equal(names, row, {}, is_number, is_number);
  const bool all = numbers.size() == names.size();
  if (!all && (!alike || are_counted(numbers))) return {};
  return rejected("dataset-header",
                  file + " has no header row: its first line holds " +
                      (all ? "only numbers" : "numbers where the line below has them") +
                      "; write the names of the columns above it");
}

Result<void> check_names(const std::string& file, const std::vector<std::string>& names) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string column = "column " + std::to_string(i + 1);
    if (names[i].empty()) {
      return rejected("dataset-header",
                      file + ": " + column +
                          " has no name; name it in the first line, or leave it out (pandas writes "
                          "such a column of row numbers unless index=False)");
    }
    if (!is_utf8(names[i])) {
      return rejected("dataset-header", file + ": the name of " + column +
                                            " is not UTF-8; save the file with this encoding");
    }
    if (seen.insert(names[i]).second) continue;
    return rejected("dataset-header",
                    file + " has two columns called '" + printable(names[i]) + "'");
  }
  return {};
}

Result<Columns> read_header(CsvRecords& records, const LoadOptions& options) {
  Columns columns;
  STARLING_ASSIGN(const bool present, records.next(columns.names));
  if (!present) return rejected("dataset-malformed", records.name() + " is empty");
  for (std::string& name : columns.names) name = trimmed(name);
  STARLING_TRY(check_is_header(records.name(), options.bytes_max, columns.names));
  STARLING_TRY(check_names(records.name(), columns.names));
  const std::vector<std::string_view> names(columns.names.begin(), columns.names.end());
  const auto find = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
  };
  if (!options.group_column.empty()) {
    columns.group = find(options.group_column);
    if (*columns.group == names.size()) {
      return wrong_setting("dataset-column", records.name() + " has no column '" +
                                                 printable(options.group_column) + "'" +
                                                 suggestion(options.group_column, names));
    }
  }
  columns.label = std::min(find("label"), names.size() - 1);
  if (columns.group == columns.label || names.size() < (columns.group ? 3U : 2U)) {
    return rejected("dataset-column", records.name() +
                                          " needs a column for the class and at least one more for "
                                          "the features");
  }
  return columns;
}

// Reads a record of as many fields as there are columns; false at the end.
Result<bool> next_row(CsvRecords& records, const Columns& columns,
                      std::vector<std::string>& fields) {
  STARLING_ASSIGN(const bool present, records.next(fields));
  if (!present || fields.size() == columns.names.size()) return present;
  return rejected("dataset-malformed", records.name() + ", line " + std::to_string(records.line()) +
                                           ": " + std::to_string(fields.size()) +
                                           " fields, but the header has " +
                                           std::to_string(columns.names.size()));
}

struct LabelColumn : TextColumn {
  bool all_numbers = true;
  bool any_number = false;
  std::optional<Error> not_a_class;  // the first number that is none
  std::string first_text;            // the first label that is no number, and its line
};

void add_label(const CsvRecords& records, const std::string& column, std::string_view label,
               LabelColumn& labels) {
  if (labels.ids.contains(label)) return labels.add(label);
  labels.add(label);
  const std::optional<double> value = read_number(label);
  if (value) labels.any_number = true;
  if (!value && labels.all_numbers) {
    labels.first_text = "line " + std::to_string(records.line()) + ", column '" +
                        printable(column) + "' has '" + printable(label) + "'";
  }
  if (!value) labels.all_numbers = false;
  if (!value || labels.not_a_class) return;
  if (*value == std::rint(*value) && *value >= 0 && *value < kClassesMax) return;
  labels.not_a_class = rejected(
      "label-out-of-range",
      records.name() + ", line " + std::to_string(records.line()) + ", column '" +
          printable(column) + "': " + printable(label) +
          " is not a class; classes count from 0 to at most " + std::to_string(kClassesMax - 1) +
          " in whole numbers, or are texts" + (column == "label" ? "" : kWhichIsTheClass));
}

Result<void> number_classes(const CsvRecords& records, const LabelColumn& labels,
                            const LoadOptions& options, Dataset::Content& content) {
  content.labels.resize(labels.rows.size());
  if (labels.all_numbers) {
    if (labels.not_a_class) return *labels.not_a_class;
    std::vector<std::int32_t> classes(labels.ids.size());
    for (const auto& [text, id] : labels.ids) {
      classes[id] = static_cast<std::int32_t>(read_number(text).value());
    }
    std::ranges::transform(labels.rows, content.labels.begin(),
                           [&](std::uint32_t id) { return classes[id]; });
    return count_classes(records.name(), content, options);
  }
  const std::size_t count = labels.ids.size();
  if (count > kClassesMax || (options.classes > 0 && count != std::size_t(options.classes))) {
    return rejected(
        "label-out-of-range",
        records.name() + " has " + std::to_string(count) +
            " different texts as labels, but there are " +
            std::to_string(options.classes > 0 ? std::size_t(options.classes) : kClassesMax) +
            " classes; where a file does not hold every class, write integers" +
            (labels.any_number ? ": " + labels.first_text : ""));
  }
  content.class_names = labels.sorted_names();
  if (!std::ranges::all_of(content.class_names, is_utf8)) {
    return rejected("dataset-malformed", records.name() +
                                             " has labels that are not UTF-8; save the file with "
                                             "this encoding");
  }
  std::ranges::copy(labels.sorted_rows(), content.labels.begin());
  return count_classes(records.name(), content, options);
}

Result<void> read_labels(CsvRecords& records, const Columns& columns, const LoadOptions& options,
                         Dataset::Content& content) {
  LabelColumn labels;
  TextColumn groups;
  std::vector<std::string> fields;
  for (;;) {
    STARLING_ASSIGN(const bool present, next_row(records, columns, fields));
    if (!present) break;
    const std::string_view label = trimmed(fields[columns.label]);
    if (label.empty()) {
      return rejected("dataset-malformed",
                      records.name() + ", line " + std::to_string(records.line()) + ", column '" +
                          printable(columns.names[columns.label]) + "': the label is missing");
    }
    add_label(records, columns.names[columns.label], label, labels);
    if (columns.group) groups.add(fields[*columns.group]);
    if (labels.rows.size() > options.rows_max) break;
    if (labels.ids.size() > static_cast<std::size_t>(kClassesMax)) {
      return rejected("label-out-of-range",
                      records.name() + " has more than " + std::to_string(kClassesMax) +
                          " different labels in column '" +
                          printable(columns.names[columns.label]) + "'" + kWhichIsTheClass);
    }
  }
  STARLING_TRY(check_rows(records.name(), labels.rows.size(), options));
  content.groups = groups.sorted_rows();
  content.group_names = groups.sorted_names();
  return number_classes(records, labels, options, content);
}

// `columns`: of which the text stands in the one at `at`.
Result<float> read_feature(const CsvRecords& records, const Columns& columns, std::size_t at,
                           const std::string& text) {
  const std::optional<double> number = read_number(text);
  const auto value = static_cast<float>(number.value_or(0));
  if (number && std::isfinite(value)) return value;
  const std::string where = records.name() + ", line " + std::to_string(records.line()) +
                            ", column '" + printable(columns.names[at]) + "': ";
  if (trimmed(text).empty()) return rejected("dataset-malformed", where + "the value is missing");
  const bool has_comma = records.separator() != ',' && text.find(',') != std::string::npos;
  return rejected(
      number ? "not-finite" : "dataset-malformed",
      where + "'" + printable(text) + "' is not a number that float32 can hold" +
          (has_comma ? "; write decimals with a point" : "") +
          (number || has_comma || columns.names[columns.label] == "label" ? "" : kWhichIsTheClass));
}

Result<std::vector<float>> read_features(CsvRecords& records, const Columns& columns,
                                         const std::vector<std::uint32_t>& chosen) {
  std::vector<float> features;
  features.reserve(chosen.size() * columns.features());
  std::vector<std::string> fields;
  STARLING_ASSIGN(bool present, records.next(fields));  // the header
  std::size_t next = 0;
  for (std::size_t row = 0; next < chosen.size(); ++row) {
    STARLING_ASSIGN(present, next_row(records, columns, fields));
    if (!present) {
      return rejected("dataset-malformed", records.name() + " became shorter while it was read");
    }
    if (row != chosen[next]) continue;
    for (std::size_t column = 0; column < fields.size(); ++column) {
      if (!columns.is_feature(column)) continue;
      STARLING_ASSIGN(const float value, read_feature(records, columns, column, fields[column]));
      features.push_back(value);
    }
    ++next;
  }
  return features;
}

}  // namespace

Result<Dataset::Content> read_csv(const std::filesystem::path& path, const LoadOptions& options) {
  STARLING_ASSIGN(CsvRecords first_pass, CsvRecords::open(path, options.bytes_max));
  STARLING_ASSIGN(const Columns columns, read_header(first_pass, options));
  Dataset::Content content;
  STARLING_TRY(read_labels(first_pass, columns, options, content));
  content.shape = {1, 1, static_cast<int>(columns.features())};
  content.class_column = columns.names[columns.label];
  for (std::size_t i = 0; i < columns.names.size(); ++i) {
    if (columns.is_feature(i)) content.feature_names.push_back(columns.names[i]);
  }
  STARLING_ASSIGN(const auto chosen, choose_rows(content, options));
  STARLING_TRY(
      check_bytes(path.string(), chosen.size(), columns.features(), sizeof(float), options));
  STARLING_ASSIGN(CsvRecords second_pass, CsvRecords::open(path, options.bytes_max));
  STARLING_ASSIGN(content.features, read_features(second_pass, columns, chosen));
  keep_rows(content, chosen);
  return content;
}

}  // namespace starling::data

// SPDX-License-Identifier: Apache-2.0
#include "core/config/documentation.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace starling::config {
namespace {

// A TOML basic string.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string as_toml(const Field& field) {
  std::string text = field.text();
  if (field.type == FieldType::kText || field.type == FieldType::kDuration ||
      (field.optional && text == "none")) {
    return toml_string(text);
  }
  if (field.type == FieldType::kTextList) {
    std::string list;
    for (const std::string& element :
         FieldText<std::vector<std::string>>::read(text, field.info).value()) {
      list += (list.empty() ? "" : ", ") + toml_string(element);
    }
    return "[" + list + "]";
  }
  if (field.type != FieldType::kIntegerList && field.type != FieldType::kNumberList) return text;
  std::string list = "[";
  for (char c : text) list += c == ',' ? ", " : std::string(1, c);
  return list + "]";
}

std::string cell(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Error stale(std::string_view name, const std::string& why) {
  return rejected("documentation-stale", "the table of keys '" + std::string(name) + "' " + why);
}

}  // namespace

KeyDocument document(const Field& field) {
  std::string range = describe_range(field.info, field.type);
  if (range.empty() && field.type == FieldType::kBoolean) range = "true or false";
  return {field.key, as_toml(field), std::string(field.info.unit), std::move(range),
          std::string(field.info.help)};
}

std::string to_markdown(std::span<const KeyDocument> keys) {
  std::string table = "| key | default | unit | range | meaning |\n|---|---|---|---|---|\n";
  for (const KeyDocument& key : keys) {
    table += "| `" + key.key + "` | `" + cell(key.default_value) + "` | " + cell(key.unit) + " | " +
             cell(key.range) + " | " + cell(key.help) + " |\n";
  }
  return table;
}

Result<void> check_documentation(std::span<const KeyDocument> keys, std::string_view name,
                                 std::string_view markdown) {
  const std::vector<std::string_view> lines = lines_of(markdown);
  const std::string begin_mark = "<!-- keys: " + std::string(name) + " -->";
  const auto begin = std::ranges::find(lines, begin_mark);
  const auto end = std::find(begin, lines.end(), "<!-- end -->");
  if (end == lines.end()) {
    return stale(name,
                 "is missing: put it between the lines '" + begin_mark + "' and '<!-- end -->'");
  }
  const std::string table = to_markdown(keys);
  const std::vector<std::string_view> wanted = lines_of(table);
  const auto [has, wants] = std::mismatch(begin + 1, end, wanted.begin(), wanted.end());
  if (has == end && wants == wanted.end()) return {};
  const std::string line = std::to_string(has - lines.begin() + 1);
  if (wants == wanted.end()) return stale(name, "has a line too many, line " + line);
  return stale(
      name, "differs from the code in line " + line + ", which should be: " + std::string(*wants));
}

}  // namespace starling::config

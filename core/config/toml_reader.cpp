// SPDX-License-Identifier: Apache-2.0
#include "core/config/toml_reader.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cmath>
#include <sstream>

#include "core/base/nearest_name.h"

namespace starling::config {
namespace {

std::string_view quoted_type(const toml::node& node) {
  if (node.is_table()) return "a table";
  return node.is_array() ? "an array" : "a date";
}

// An array of numbers as "1,2.5", one of texts as FieldText writes it; anything else has no type.
void read_array(const toml::array& array, TomlEntry& entry) {
  std::vector<std::string> texts;
  std::string text;
  bool all_integers = true;
  for (const toml::node& element : array) {
    if (const auto* integer = element.as_integer()) {
      if (!text.empty()) text += ',';
      text += std::to_string(integer->get());
    } else if (const auto* number = element.as_floating_point()) {
      if (!text.empty()) text += ',';
      text += FieldText<double>::write(number->get());
      all_integers = false;
    } else if (const auto* string = element.as_string()) {
      texts.push_back(string->get());
    } else {
      return;
    }
  }
  if (!text.empty() && !texts.empty()) return;
  const FieldType numbers = all_integers ? FieldType::kIntegerList : FieldType::kNumberList;
  entry.type = texts.empty() ? numbers : FieldType::kTextList;
  entry.text = texts.empty() ? std::move(text) : FieldText<std::vector<std::string>>::write(texts);
}

TomlEntry read_value(std::string key, const toml::node& node) {
  TomlEntry entry{std::move(key), node.source().begin.line, std::nullopt, ""};
  if (const auto* boolean = node.as_boolean()) {
    entry.type = FieldType::kBoolean;
    entry.text = FieldText<bool>::write(boolean->get());
  } else if (const auto* integer = node.as_integer()) {
    entry.type = FieldType::kInteger;
    entry.text = FieldText<std::int64_t>::write(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    entry.type = FieldType::kNumber;
    entry.text = FieldText<double>::write(number->get());
  } else if (const auto* text = node.as_string()) {
    entry.type = FieldType::kText;
    entry.text = text->get();
  } else if (const auto* array = node.as_array()) {
    read_array(*array, entry);
  }
  if (!entry.type) entry.text = quoted_type(node);
  return entry;
}

void collect(const std::string& prefix, const toml::table& table, std::vector<TomlEntry>& entries) {
  for (const auto& [name, node] : table) {
    std::string key = prefix + std::string(name.str());
    const toml::table* inner = node.as_table();
    if (inner == nullptr || inner->empty()) {
      entries.push_back(read_value(std::move(key), node));
    } else {
      collect(key + ".", *inner, entries);
    }
  }
}

// JSON has no numbers that are not finite.
bool is_finite(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    return std::ranges::all_of(*table, [](const auto& entry) { return is_finite(entry.second); });
  }
  if (const auto* array = node.as_array()) {
    return std::ranges::all_of(*array,
                               [](const toml::node& element) { return is_finite(element); });
  }
  const auto* number = node.as_floating_point();
  return number == nullptr || std::isfinite(number->get());
}

// Dates and times as texts, as TOML writes them. Requires: is_finite().
boost::json::value to_json(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    boost::json::object object;
    for (const auto& [name, member] : *table) object[std::string(name.str())] = to_json(member);
    return object;
  }
  if (const auto* array = node.as_array()) {
    boost::json::array list;
    for (const toml::node& element : *array) list.push_back(to_json(element));
    return list;
  }
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  if (const auto* integer = node.as_integer()) return integer->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* text = node.as_string()) return boost::json::value(text->get());
  std::ostringstream date;
  node.visit([&date](const auto& value) { date << value; });
  return boost::json::value(date.str());
}

// Takes the free tables out of the document.
Result<std::vector<TomlEntry>> take_free_tables(toml::table& document, std::string_view file_name,
                                                const std::vector<FreeTable>& free_tables) {
  std::vector<TomlEntry> entries;
  for (const auto& [name, key] : free_tables) {
    const toml::table* table = document[name].as_table();
    if (table == nullptr) continue;
    const bool is_text = table->size() == 1 && table->contains(key) && (*table)[key].is_string();
    if (is_text) continue;
    if (!is_finite(*table)) {
      return wrong_setting("setting-invalid",
                           std::string(file_name) + ": [" + name +
                               "] has a number that is inf or nan, which cannot be passed on; "
                               "write it as a text");
    }
    entries.push_back({name + '.' + key, table->source().begin.line, FieldType::kText,
                       boost::json::serialize(to_json(*table))});
    document.erase(name);
  }
  return entries;
}

// Each dot of a key is a table within a table, and the parser descends by recursion.
Result<void> check_depth(std::string_view text, std::string_view file_name) {
  constexpr std::ptrdiff_t kDotsMax = 1000;
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (std::ranges::count(line, '.') > kDotsMax) {
      return wrong_setting("toml-malformed", std::string(file_name) + ":" + std::to_string(number) +
                                                 ": the line has more than " +
                                                 std::to_string(kDotsMax) + " dots");
    }
    begin = end + 1;
  }
  return {};
}

// What the parser does not say of `key = some text`, `key = 60s`, `key = 10.0.0.1:80` and
// `key = [some, texts]`.
std::string hint_of_quotes(std::string_view text, std::size_t number) {
  while (--number > 0) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  const std::string_view line = text.substr(0, text.find_first_of("\r\n#"));
  const std::size_t begin = line.find_first_not_of(" \t", line.find('=') + 1);
  if (line.find('=') == line.npos || begin == line.npos) return "";
  const std::string_view value = line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  if (value.front() == '[' && value.find_first_of("\"'") == value.npos &&
      std::ranges::any_of(value, is_letter)) {
    return "; each text of a list stands in quotes, such as [\"red\", \"green\"]";
  }
  const bool bare = std::isalnum(static_cast<unsigned char>(value.front())) != 0;
  const bool is_address = value.find(':') != value.npos || std::ranges::count(value, '.') > 1;
  const bool is_text = is_address || std::ranges::any_of(value, is_letter);
  if (!bare || !is_text || value == "true" || value == "false") return "";
  return "; a text or a duration stands in quotes: \"" + printable(value) + "\"";
}

}  // namespace

Result<std::vector<TomlEntry>> read_toml_entries(std::string_view text, std::string_view file_name,
                                                 const std::vector<FreeTable>& free_tables) {
  STARLING_TRY(check_depth(text, file_name));
  toml::parse_result parsed = toml::parse(text, file_name);
  if (!parsed) {
    const std::size_t line = parsed.error().source().begin.line;
    return wrong_setting("toml-malformed",
                         std::string(file_name) + ":" + std::to_string(line) +
                             ": not valid TOML: " + std::string(parsed.error().description()) +
                             hint_of_quotes(text, line));
  }
  STARLING_ASSIGN(std::vector<TomlEntry> entries,
                  take_free_tables(parsed.table(), file_name, free_tables));
  collect("", parsed.table(), entries);
  std::ranges::stable_sort(entries, {}, &TomlEntry::line);
  return entries;
}

}  // namespace starling::config

// SPDX-License-Identifier: Apache-2.0
#include "core/base/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>

#include "core/base/nearest_name.h"

namespace starling {
namespace {

template <std::floating_point T>
std::string shortest(T value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

std::string bound(double value, FieldType type) {
  if (type == FieldType::kDuration) return format_duration(from_seconds(value));
  if (value == std::rint(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return shortest(value);
}

Error wrong_type(FieldType type) {
  return wrong_setting("setting-invalid", "is not " + std::string(describe_type(type)));
}

Error out_of_range(const FieldInfo& info, FieldType type) {
  std::string range = describe_range(info, type);
  if (!info.unit.empty()) range += " " + std::string(info.unit);
  return wrong_setting("setting-invalid", "is out of range; it must be " + range);
}

Result<void> check_range(double value, const FieldInfo& info, FieldType type) {
  if (value >= info.min && value <= info.max) return {};
  if (std::isnan(value)) return wrong_setting("setting-invalid", "is not a finite number");
  return out_of_range(info, type);
}

template <class T>
Result<T> read_whole(std::string_view text, const FieldInfo& info, FieldType type) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::invalid_argument || end != text.data() + text.size()) {
    return wrong_type(type);
  }
  if (code == std::errc::result_out_of_range) return out_of_range(info, type);
  STARLING_TRY(check_range(static_cast<double>(value), info, type));
  return value;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Error unknown_setting(const std::string& key, std::span<const std::string_view> known) {
  return unsupported("unknown-setting", "the setting '" + printable(key) +
                                            "' is not known to this program" +
                                            suggestion(key, known))
      .as(ErrorCategory::kUsage);
}

}  // namespace

std::string_view describe_type(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "true or false";
    case FieldType::kInteger:
      return "an integer";
    case FieldType::kNumber:
      return "a number";
    case FieldType::kText:
      return "a text";
    case FieldType::kDuration:
      return "a duration such as 250ms, 60s or 1h";
    case FieldType::kIntegerList:
      return "a list of integers";
    case FieldType::kNumberList:
      return "a list of numbers";
    case FieldType::kTextList:
      return "a list of texts";
  }
  return "";
}

std::string describe_range(const FieldInfo& info, FieldType type) {
  if (!info.choices.empty()) return join_names(info.choices, "or");
  const bool low = std::isfinite(info.min);
  const bool high = std::isfinite(info.max);
  if (low && high) return bound(info.min, type) + " to " + bound(info.max, type);
  if (low) return "at least " + bound(info.min, type);
  if (high) return "at most " + bound(info.max, type);
  return "";
}

Result<bool> FieldText<bool>::read(std::string_view text, const FieldInfo&) {
  if (text == "true") return true;
  if (text == "false") return false;
  return wrong_type(kType);
}

Result<std::int64_t> FieldText<std::int64_t>::read(std::string_view text, const FieldInfo& info) {
  return read_whole<std::int64_t>(text, info, kType);
}

Result<std::uint64_t> FieldText<std::uint64_t>::read(std::string_view text, const FieldInfo& info) {
  FieldInfo bounds = info;
  bounds.min = std::max(bounds.min, 0.0);
  if (text.starts_with('-') && read_whole<std::int64_t>(text, FieldInfo{.help = ""}, kType)) {
    return out_of_range(bounds, kType);
  }
  return read_whole<std::uint64_t>(text, bounds, kType);
}

std::string FieldText<double>::write(double value) { return shortest(value); }

Result<double> FieldText<double>::read(std::string_view text, const FieldInfo& info) {
  STARLING_ASSIGN(const double value, read_whole<double>(text, info, kType));
  if (!std::isfinite(value)) return wrong_setting("setting-invalid", "is not a finite number");
  return value;
}

Result<std::string> FieldText<std::string>::read(std::string_view text, const FieldInfo& info) {
  if (info.choices.empty() || std::ranges::find(info.choices, text) != info.choices.end()) {
    return std::string(text);
  }
  return wrong_setting("setting-invalid",
                       "is not " + join_names(info.choices, "or") + suggestion(text, info.choices));
}

Result<Duration> FieldText<Duration>::read(std::string_view text, const FieldInfo& info) {
  const Result<Duration> value = parse_duration(text);
  if (!value) return wrong_type(kType);
  STARLING_TRY(check_range(to_seconds(*value), info, kType));
  return *value;
}

namespace {

template <class T, class Write>
std::string write_list(const std::vector<T>& value, Write write) {
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (i > 0) text += ',';
    text += write(value[i]);
  }
  return text;
}

// `wrong`: the sentence where an element is not of the type.
template <class T, class Read>
Result<std::vector<T>> read_list(std::string_view text, FieldType element_type,
                                 const std::string& wrong, Read read) {
  std::vector<T> list;
  if (trim(text).empty()) return list;
  for (;;) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const Result<T> element = read(trim(text.substr(0, comma)));
    if (!element && element.error().message() == wrong_type(element_type).message()) {
      return wrong_setting("setting-invalid", wrong);
    }
    if (!element) return element.error();
    list.push_back(*element);
    if (comma == text.size()) return list;
    text.remove_prefix(comma + 1);
  }
}

Result<float> read_float(std::string_view text, const FieldInfo& info) {
  STARLING_ASSIGN(const double value, FieldText<double>::read(text, info));
  const auto narrow = static_cast<float>(value);
  if (std::isfinite(narrow)) return narrow;
  return wrong_setting("setting-invalid", "has a number that float32 cannot hold");
}

}  // namespace

std::string FieldText<std::vector<int>>::write(const std::vector<int>& value) {
  return write_list(value, [](int element) { return std::to_string(element); });
}

Result<std::vector<int>> FieldText<std::vector<int>>::read(std::string_view text,
                                                           const FieldInfo& info) {
  return read_list<int>(
      text, FieldType::kInteger,
      "is not a list of integers with commas between them, such as 200,100",
      [&](std::string_view element) { return FieldText<int>::read(element, info); });
}

std::string FieldText<std::vector<float>>::write(const std::vector<float>& value) {
  return write_list(value, [](float element) { return shortest(element); });
}

Result<std::vector<float>> FieldText<std::vector<float>>::read(std::string_view text,
                                                               const FieldInfo& info) {
  return read_list<float>(text, FieldType::kNumber,
                          "is not a list of numbers with commas between them, such as 0.5,12",
                          [&](std::string_view element) { return read_float(element, info); });
}

namespace {

bool needs_quotes(const std::string& text) {
  return text.empty() || text.find_first_of(",\"") != text.npos || text.front() == ' ' ||
         text.back() == ' ';
}

// Takes one element and the comma behind it from `text`; nothing: the quotes are not in order.
std::optional<std::string> take_element(std::string_view& text, bool& more) {
  std::string element;
  text = trim(text);
  const bool quoted = text.starts_with('"');
  if (quoted) {
    std::size_t at = 1;
    for (; at < text.size(); ++at) {
      if (text[at] == '"' && text.substr(at + 1, 1) != "\"") break;
      if (text[at] == '"') ++at;
      element += text[at];
    }
    if (at >= text.size()) return std::nullopt;
    text = trim(text.substr(at + 1));
    if (!text.empty() && text.front() != ',') return std::nullopt;
  } else {
    element = trim(text.substr(0, text.find(',')));
    if (element.find('"') != element.npos) return std::nullopt;
    text.remove_prefix(std::min(text.find(','), text.size()));
  }
  more = !text.empty();
  if (more) text.remove_prefix(1);
  return element;
}

}  // namespace

std::string FieldText<std::vector<std::string>>::write(const std::vector<std::string>& value) {
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (i > 0) text += ',';
    if (!needs_quotes(value[i])) {
      text += value[i];
      continue;
    }
    text += '"';
    for (const char c : value[i]) text += c == '"' ? "\"\"" : std::string(1, c);
    text += '"';
  }
  return text;
}

Result<std::vector<std::string>> FieldText<std::vector<std::string>>::read(std::string_view text,
                                                                           const FieldInfo&) {
  std::vector<std::string> list;
  if (trim(text).empty()) return list;
  for (bool more = true; more;) {
    auto element = take_element(text, more);
    if (!element) {
      return wrong_setting(
          "setting-invalid",
          "is not a list of texts with commas between them; one with a comma in it "
          "stands in quotes");
    }
    list.push_back(std::move(*element));
  }
  return list;
}

Error invalid_setting(std::string_view key, std::string_view text, const Error& why) {
  return why.with_message(std::string(key) + " = '" + printable(text) + "' " + why.message());
}

Settings to_settings(const std::vector<Field>& fields) {
  Settings settings;
  settings.reserve(fields.size());
  for (const Field& field : fields) settings.emplace_back(field.key, field.text());
  return settings;
}

Result<void> set_fields(const std::vector<Field>& fields, std::string_view prefix,
                        const Settings& settings) {
  const std::string start = prefix.empty() ? "" : std::string(prefix) + ".";
  std::vector<std::string_view> known;
  for (const Field& field : fields) known.push_back(field.key);
  std::vector<bool> seen(fields.size());
  for (const auto& [key, text] : settings) {
    if (!key.starts_with(start)) continue;
    const auto at = static_cast<std::size_t>(std::ranges::find(known, key) - known.begin());
    if (at == fields.size()) return unknown_setting(key, known);
    if (seen[at]) {
      return wrong_setting("setting-repeated", "the setting '" + key + "' is given more than once");
    }
    seen[at] = true;
    STARLING_TRY(fields[at].set(text));
  }
  return {};
}

Result<void> expect_prefixes(const Settings& settings, std::span<const std::string_view> prefixes) {
  for (const auto& [key, text] : settings) {
    const std::string_view prefix = std::string_view(key).substr(0, key.find('.'));
    if (prefix.size() == key.size() || std::ranges::find(prefixes, prefix) == prefixes.end()) {
      return unknown_setting(key, {});
    }
  }
  return {};
}

}  // namespace starling

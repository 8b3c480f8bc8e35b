// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/text_table.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <optional>

#include "core/base/bytes.h"
#include "core/base/decimal.h"
#include "core/base/escape_controls.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

constexpr std::string_view kMissing = "-";

const json::value* member(const json::value& object, std::string_view key) {
  const json::object* members = object.if_object();
  return members ? members->if_contains(json::string_view(key.data(), key.size())) : nullptr;
}

std::string text_cell(std::string_view text) {
  return text.empty() ? std::string(kMissing) : escape_controls(text);
}

std::optional<double> number(const json::value* value) {
  if (value == nullptr || !value->is_number()) return std::nullopt;
  boost::system::error_code code;
  return value->to_number<double>(code);
}

}  // namespace

std::string cell(const json::value& object, std::string_view key) {
  const json::value* value = member(object, key);
  if (value == nullptr || value->is_null()) return std::string(kMissing);
  if (const auto* text = value->if_string()) return text_cell({text->data(), text->size()});
  if (value->is_bool()) return value->get_bool() ? "yes" : "no";
  if (const auto* integer = value->if_int64()) return fmt::format("{}", *integer);
  if (const auto* integer = value->if_uint64()) return fmt::format("{}", *integer);
  if (const auto real = number(value)) return fmt::format("{:g}", *real);
  return text_cell(json::serialize(*value));
}

std::string cell(const json::value& object, std::string_view key, int digits) {
  const auto value = number(member(object, key));
  return value ? decimal(*value, digits) : std::string(kMissing);
}

std::string bytes_cell(const json::value& object, std::string_view key) {
  const auto value = number(member(object, key));
  if (!value || *value < 0) return std::string(kMissing);
  return format_byte_count(static_cast<std::uint64_t>(*value));
}

std::string time_cell(const json::value& object, std::string_view key) {
  std::string text = cell(object, key);
  if (text.size() < 20 || text[10] != 'T') return text;
  text[10] = ' ';
  return text.substr(0, 19) + "Z";
}

std::string recent_time_cell(const json::value& object, std::string_view key, WallTime now) {
  std::string text = time_cell(object, key);
  const std::string today = format_rfc3339(now).substr(0, 10) + " ";
  return text.starts_with(today) ? text.substr(today.size()) : text;
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "core/base/bytes.h"
#include "core/base/check.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

constexpr std::string_view kMissing = "-";

const json::value* member(const json::value& object, std::string_view key) {
  const json::object* members = object.if_object();
  return members ? members->if_contains(json::string_view(key.data(), key.size())) : nullptr;
}

std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return line.empty() ? std::string(kMissing) : line;
}

std::optional<double> number(const json::value* value) {
  if (value == nullptr || !value->is_number()) return std::nullopt;
  boost::system::error_code code;
  return value->to_number<double>(code);
}

}  // namespace

TextTable::TextTable(std::vector<std::string> headers) : headers_(std::move(headers)) {
  for (std::string& header : headers_) {
    right_.push_back(header.starts_with('>'));
    if (right_.back()) header.erase(0, 1);
  }
}

void TextTable::add(std::vector<std::string> cells) {
  STARLING_CHECK(cells.size() == headers_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths(headers_.size(), 0);
  const auto widen = [&widths](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  };
  widen(headers_);
  std::ranges::for_each(rows_, widen);
  std::string text;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += right_[i] ? fmt::format("{:>{}}", row[i], widths[i])
                        : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  print(headers_);
  std::ranges::for_each(rows_, print);
  return text;
}

std::string cell(const json::value& object, std::string_view key) {
  const json::value* value = member(object, key);
  if (value == nullptr || value->is_null()) return std::string(kMissing);
  if (const auto* text = value->if_string()) return on_one_line({text->data(), text->size()});
  if (value->is_bool()) return value->get_bool() ? "yes" : "no";
  if (const auto* integer = value->if_int64()) return fmt::format("{}", *integer);
  if (const auto* integer = value->if_uint64()) return fmt::format("{}", *integer);
  if (const auto real = number(value)) return fmt::format("{:g}", *real);
  return on_one_line(json::serialize(*value));
}

std::string cell(const json::value& object, std::string_view key, int digits) {
  const auto value = number(member(object, key));
  return value ? fmt::format("{:.{}f}", *value, digits) : std::string(kMissing);
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

}  // namespace starling::coordinator

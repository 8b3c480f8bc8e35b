// SPDX-License-Identifier: Apache-2.0
#include "core/report/json_members.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

namespace starling::report {
namespace {

namespace json = boost::json;

const json::value* present(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

Error wrong_type(std::string_view where, std::string_view key, std::string_view type) {
  return bad_run(where, fmt::format("'{}' is not {}", key, type));
}

}  // namespace

Error bad_run(std::string_view where, std::string_view what) {
  return rejected("bad-run", fmt::format("{}: {}", where, what));
}

Result<json::object> parse_object(std::string_view text, std::string_view where) {
  boost::system::error_code code;
  json::value value = json::parse(json::string_view(text.data(), text.size()), code);
  if (code == json::error::incomplete) {
    return bad_run(where, "the JSON breaks off; the run may not have ended");
  }
  if (code) return bad_run(where, fmt::format("not JSON ({})", code.message()));
  if (!value.is_object()) return bad_run(where, "not a JSON object");
  return std::move(value.get_object());
}

Result<std::optional<double>> number_member(const json::object& object, std::string_view key,
                                            std::string_view where) {
  const json::value* value = present(object, key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return wrong_type(where, key, "a number");
  boost::system::error_code code;
  const auto number = value->to_number<double>(code);
  if (code || !std::isfinite(number)) return wrong_type(where, key, "a finite number");
  return std::optional(number);
}

Result<std::optional<bool>> bool_member(const json::object& object, std::string_view key,
                                        std::string_view where) {
  const json::value* value = present(object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return wrong_type(where, key, "true or false");
  return std::optional(value->get_bool());
}

Result<std::string> text_member(const json::object& object, std::string_view key,
                                std::string_view where) {
  const json::value* value = present(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return wrong_type(where, key, "a text");
  return std::string(value->get_string().data(), value->get_string().size());
}

Result<const json::object*> object_member(const json::object& object, std::string_view key,
                                          std::string_view where) {
  const json::value* value = present(object, key);
  if (value == nullptr) return static_cast<const json::object*>(nullptr);
  if (!value->is_object()) return wrong_type(where, key, "an object");
  return &value->get_object();
}

}  // namespace starling::report

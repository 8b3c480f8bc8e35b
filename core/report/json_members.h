// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects, read with the place in the error: absent and null are nothing, another
// type is refused.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace starling::report {

// `where` names file and line: "metrics.jsonl, line 3".
Error bad_run(std::string_view where, std::string_view what);

[[nodiscard]] Result<boost::json::object> parse_object(std::string_view text,
                                                       std::string_view where);
[[nodiscard]] Result<std::optional<double>> number_member(const boost::json::object& object,
                                                          std::string_view key,
                                                          std::string_view where);
[[nodiscard]] Result<std::optional<bool>> bool_member(const boost::json::object& object,
                                                      std::string_view key, std::string_view where);
// Empty where absent.
[[nodiscard]] Result<std::string> text_member(const boost::json::object& object,
                                              std::string_view key, std::string_view where);
// Null where absent. Valid as long as the object.
[[nodiscard]] Result<const boost::json::object*> object_member(const boost::json::object& object,
                                                               std::string_view key,
                                                               std::string_view where);

}  // namespace starling::report

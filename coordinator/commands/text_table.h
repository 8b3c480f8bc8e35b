// SPDX-License-Identifier: Apache-2.0
// Facts for people: cells of tables, and the words for what is missing.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/telemetry/text_table.h"

namespace starling::coordinator {

using telemetry::TextTable;

// A member of a JSON object as a cell: texts as they are (control characters escaped), numbers in
// short form, true and false as yes and no, null and what is missing as "-".
std::string cell(const boost::json::value& object, std::string_view key);
// The same with so many digits after the point.
std::string cell(const boost::json::value& object, std::string_view key, int digits);
// The same for a number of bytes: "4.8 MB".
std::string bytes_cell(const boost::json::value& object, std::string_view key);
// The same for a time: "2026-11-20 09:10:11Z".
std::string time_cell(const boost::json::value& object, std::string_view key);
// The same of a time that mostly is of today: the time of day alone where it is.
std::string recent_time_cell(const boost::json::value& object, std::string_view key, WallTime now);

}  // namespace starling::coordinator

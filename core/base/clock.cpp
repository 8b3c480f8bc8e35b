// SPDX-License-Identifier: Apache-2.0
#include "core/base/clock.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace starling {
namespace {

struct Unit {
  const char* suffix;
  std::int64_t nanoseconds;
};
constexpr std::array<Unit, 7> kUnits = {{{"d", 86'400'000'000'000},
                                         {"h", 3'600'000'000'000},
                                         {"m", 60'000'000'000},
                                         {"s", 1'000'000'000},
                                         {"ms", 1'000'000},
                                         {"us", 1'000},
                                         {"ns", 1}}};

Error bad_time(std::string_view text) {
  return wrong_setting(
      "not-a-time",
      "'" + std::string(text) + "' is not a time; write it as 2026-11-20T09:10:11Z (RFC 3339)");
}

}  // namespace

TimePoint SystemClock::now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

WallTime SystemClock::wall_now() const {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Duration from_seconds(double seconds) {
  constexpr double kMost = 9e9;
  return Duration(
      static_cast<std::int64_t>(std::llround(std::clamp(seconds, -kMost, kMost) * 1e9)));
}

std::string format_rfc3339(WallTime time) {
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss clock(time - days);
  char text[48];
  std::snprintf(
      text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text;
}

Result<WallTime> parse_rfc3339(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, length = 0;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2d%*1[Tt ]%2d:%2d:%2d%n", &year, &month, &day, &hour,
                  &minute, &second, &length) != 6) {
    return bad_time(text);
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return bad_time(text);
  std::string_view rest = std::string_view(copy).substr(static_cast<std::size_t>(length));
  int milliseconds = 0;
  if (!rest.empty() && rest[0] == '.') {
    int scale = 100;
    std::size_t i = 1;
    for (; i < rest.size() && rest[i] >= '0' && rest[i] <= '9'; ++i, scale /= 10) {
      milliseconds += scale * (rest[i] - '0');
    }
    if (i == 1) return bad_time(text);
    rest.remove_prefix(i);
  }
  int offset_minutes = 0;
  if (rest != "Z" && rest != "z") {
    int offset_hours = 0;
    int offset_rest = 0;
    int used = 0;
    const std::string zone(rest);
    if (zone.size() != 6 || (zone[0] != '+' && zone[0] != '-') ||
        std::sscanf(zone.c_str() + 1, "%2d:%2d%n", &offset_hours, &offset_rest, &used) != 2 ||
        used != 5) {
      return bad_time(text);
    }
    offset_minutes = (offset_hours * 60 + offset_rest) * (zone[0] == '-' ? -1 : 1);
  }
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute - offset_minutes) + std::chrono::seconds(second) +
         std::chrono::milliseconds(milliseconds);
}

Result<Duration> parse_duration(std::string_view text) {
  double amount = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, amount);
  const std::string_view suffix(end, static_cast<std::size_t>(last - end));
  if (error == std::errc() && std::isfinite(amount) && amount >= 0) {
    std::int64_t whole = 0;  // exact where a double is not: above 2^53
    const bool is_whole = std::from_chars(text.data(), end, whole).ptr == end;
    for (const Unit& unit : kUnits) {
      if (suffix != unit.suffix) continue;
      const double nanoseconds = amount * static_cast<double>(unit.nanoseconds);
      if (nanoseconds > 9e18) break;
      return Duration(is_whole ? whole * unit.nanoseconds : std::llround(nanoseconds));
    }
  }
  return wrong_setting(
      "not-a-duration",
      "'" + std::string(text) + "' is not a duration; write it as 250ms, 60s, 5m, 1h or 30d");
}

std::string format_duration(Duration duration) {
  if (duration.count() == 0) return "0s";
  for (const Unit& unit : kUnits) {
    if (duration.count() % unit.nanoseconds == 0) {
      return std::to_string(duration.count() / unit.nanoseconds) + unit.suffix;
    }
  }
  return std::to_string(duration.count()) + "ns";
}

}  // namespace starling

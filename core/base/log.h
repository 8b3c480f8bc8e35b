// SPDX-License-Identifier: Apache-2.0
// A log that is passed down, not global. Only main creates one that writes (see make_stderr_log).
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace starling {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view line) = 0;

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }
};

// Writes nothing.
class NullLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

// Time (UTC, as every time that Starling prints), level and line to standard error (spdlog);
// thread-safe; coloured on a terminal only.
std::unique_ptr<Log> make_stderr_log(LogLevel level);

}  // namespace starling

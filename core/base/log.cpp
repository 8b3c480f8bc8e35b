// SPDX-License-Identifier: Apache-2.0
#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdint>

#include "core/base/escape_controls.h"
#include "core/base/terminal_log.h"
#include "core/base/word_wrap.h"

namespace starling {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

class StderrLog final : public Log {
 public:
  StderrLog(LogLevel level, std::size_t columns)
      : columns_(columns),
        logger_("starling", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger_.set_level(to_spdlog(level));
    logger_.flush_on(spdlog::level::debug);
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %v", spdlog::pattern_time_type::utc);
  }

  void write(LogLevel level, std::string_view line) override {
    // Names, addresses and reasons from outside are in it.
    std::string clean = escape_controls(line);
    if (columns_ != SIZE_MAX) {
      const spdlog::string_view_t word = spdlog::level::to_string_view(to_spdlog(level));
      clean = wrap(clean, columns_, kTimeColumns + word.size() + 2);
    }
    logger_.log(to_spdlog(level), spdlog::string_view_t(clean.data(), clean.size()));
  }

 private:
  static constexpr std::size_t kTimeColumns = 24;

  const std::size_t columns_;
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> make_stderr_log(LogLevel level) {
  return std::make_unique<StderrLog>(level, SIZE_MAX);
}

std::unique_ptr<Log> make_terminal_log(LogLevel level, std::size_t columns) {
  return std::make_unique<StderrLog>(level, columns);
}

}  // namespace starling

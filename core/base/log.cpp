// SPDX-License-Identifier: Apache-2.0
#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "core/base/escape_controls.h"

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
  explicit StderrLog(LogLevel level)
      : logger_("starling", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger_.set_level(to_spdlog(level));
    logger_.flush_on(spdlog::level::debug);
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %v", spdlog::pattern_time_type::utc);
  }

  void write(LogLevel level, std::string_view line) override {
    // Names, addresses and reasons from outside are in it.
    const std::string clean = escape_controls(line);
    logger_.log(to_spdlog(level), spdlog::string_view_t(clean.data(), clean.size()));
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> make_stderr_log(LogLevel level) { return std::make_unique<StderrLog>(level); }

}  // namespace starling

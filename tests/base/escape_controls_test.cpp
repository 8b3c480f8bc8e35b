// SPDX-License-Identifier: Apache-2.0
#include "core/base/escape_controls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/terminal_log.h"

namespace starling {
namespace {

TEST(EscapeControls, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(escape_controls("\x1b[2K\r2026-11-23 info all is well\n"),
            "\\x1b[2K\\r2026-11-23 info all is well\\n");
  EXPECT_EQ(escape_controls(std::string_view("a\0b\tc\x7f", 6)), "a\\x00b\\tc\\x7f");
  EXPECT_EQ(escape_controls("a single \xC2\x9B"
                            "31m byte of an escape sequence"),
            "a single \\x9b31m byte of an escape sequence");
}

// "cam-7" that shows as another name, since what follows it is shown backwards.
TEST(EscapeControls, NothingTurnsALineAround) {
  EXPECT_EQ(escape_controls("cam-\xE2\x80\xAE"
                            "7"),
            "cam-\\xe2\\x80\\xae7");
  for (const char* control : {"\xD8\x9C", "\xE2\x80\x8E", "\xE2\x80\x8F", "\xE2\x80\xAA",
                              "\xE2\x80\xAE", "\xE2\x81\xA6", "\xE2\x81\xA9"}) {
    EXPECT_EQ(escape_controls(control).find(control), std::string::npos);
  }
  for (const char* text :
       {"\xE2\x80\x94", "\xE2\x80\xA6", "\xE2\x81\xAA", "\xE2\x80", "\xD8\xA7"}) {
    EXPECT_EQ(escape_controls(text), text);
  }
}

TEST(EscapeControls, OtherTextStaysAsItIs) {
  for (const char* text : {"", "cam-7: \"on\" \\o/", "\xC3\xA9 \xE2\x82\xAC \xC2\xA0", "\xC2"}) {
    EXPECT_EQ(escape_controls(text), text);
  }
}

// What a goodbye with an escape sequence did: it rubbed out its line and wrote another.
TEST(Log, ALineFromOutsideStaysOneLine) {
  ::testing::internal::CaptureStderr();
  {
    const auto log = make_stderr_log(LogLevel::kInfo);
    log->info("cam-7 disconnected ({})", "\r\x1b[2K\n2026-11-23T09:00:00.000 info cam-8 joined");
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(text.find('\x1b'), text.npos) << text;
  EXPECT_EQ(text.find('\r'), text.npos) << text;
}

// Machines in several zones send their lines to one place.
TEST(Log, ALinesTimeIsUtcAndSaysSo) {
  ::setenv("TZ", "XXX-9", 1);
  ::tzset();
  ::testing::internal::CaptureStderr();
  make_stderr_log(LogLevel::kInfo)->info("ready");
  const std::string text = ::testing::internal::GetCapturedStderr();
  ::unsetenv("TZ");
  ::tzset();
  ASSERT_EQ(text.substr(std::min<std::size_t>(24, text.size())), " info ready\n") << text;
  const auto time = parse_rfc3339(text.substr(0, 24));
  ASSERT_TRUE(time) << text;
  EXPECT_EQ(text[23], 'Z');
  EXPECT_LT(std::chrono::abs(*time - SystemClock().wall_now()), std::chrono::minutes(10)) << text;
}

TEST(Log, ALineIsBrokenAtBlanksWhereTheTerminalEnds) {
  ::testing::internal::CaptureStderr();
  make_terminal_log(LogLevel::kInfo, 60)->info("cam-7 connected from 10.0.0.1:23456 with 600 rows");
  const std::string text = ::testing::internal::GetCapturedStderr();
  ASSERT_GT(text.size(), 24U);
  EXPECT_EQ(text.substr(24), " info cam-7 connected from\n  10.0.0.1:23456 with 600 rows\n");
}

}  // namespace
}  // namespace starling

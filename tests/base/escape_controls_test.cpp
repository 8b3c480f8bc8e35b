// SPDX-License-Identifier: Apache-2.0
#include "core/base/escape_controls.h"

#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Log, ALineIsBrokenAtBlanksWhereTheTerminalEnds) {
  ::testing::internal::CaptureStderr();
  make_terminal_log(LogLevel::kInfo, 60)->info("cam-7 connected from 10.0.0.1:23456 with 600 rows");
  const std::string text = ::testing::internal::GetCapturedStderr();
  ASSERT_GT(text.size(), 24U);
  EXPECT_EQ(text.substr(24), " info cam-7 connected from\n  10.0.0.1:23456 with 600 rows\n");
}

}  // namespace
}  // namespace starling

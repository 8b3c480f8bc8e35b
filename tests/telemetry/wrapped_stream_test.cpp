// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/wrapped_stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>

namespace starling::telemetry {
namespace {

std::string wrapped(const std::string& text, std::size_t columns = 20) {
  std::ostringstream out;
  {
    const WrappedStream wrap(out, columns);
    out << text;
  }
  return out.str();
}

TEST(WrappedStream, BreaksAtBlanksAndNeverWithinANumber) {
  EXPECT_EQ(wrapped("accuracy 0.84211 at round 123456, loss 0.55\nnext\n"),
            "accuracy 0.84211 at\n  round 123456, loss\n  0.55\nnext\n");
  EXPECT_EQ(wrapped("twenty characters ..\n"), "twenty characters ..\n");
  EXPECT_EQ(wrapped("a 0123456789012345678901234567890 b\n"),
            "a\n  0123456789012345678901234567890\n  b\n");
  EXPECT_EQ(wrapped("naïve – naïve – naïv\n"), "naïve – naïve – naïv\n") << "20 characters";
}

TEST(WrappedStream, LeavesCommandsDrawingsAndJsonAlone) {
  for (const std::string text :
       {"  starling-edge join STJ1-ABCDEF --state client-1\n",
        "{\"text\":\"a b c d e f g h i j\"}\n", "[{\"text\":\"a b c d e f g h i j\"}]\n",
        "<svg viewBox=\"0 0 10 10\" width=\"10\">\n",
        "0.55 |\x1b[32m**** **** **** ****\x1b[0m\n"}) {
    EXPECT_EQ(wrapped(text), text);
  }
  const std::string wide(200, 'x');
  EXPECT_EQ(wrapped(wide + " " + wide, SIZE_MAX), wide + " " + wide);
}

TEST(WrappedStream, WhatIsFlushedInPiecesIsOneLine) {
  std::ostringstream out;
  const WrappedStream wrap(out, 20);
  out << "error: " << std::flush << "the coordinator does not answer" << std::endl;
  EXPECT_EQ(out.str(), "error: the\n  coordinator does\n  not answer\n");
}

TEST(WrappedStream, AProgressBarIsDrawnAtOnceAndErasedBeforeALine) {
  std::ostringstream out;
  const WrappedStream wrap(out, 20);
  out << "\r\x1b[K[####----] 1/2 rounds, which is long" << std::flush;
  EXPECT_EQ(out.str(), "\r\x1b[K[####----] 1/2 rounds, which is long");
  out.str("");
  out << "\r\x1b[K" << std::flush << "a line that is too long\n";
  EXPECT_EQ(out.str(), "\r\x1b[Ka line that is too\n  long\n");
  out.str("");
  out << "\x1b[3A\r\x1b[J"
      << "a line that is too long\n";
  EXPECT_EQ(out.str(), "\x1b[3A\r\x1b[Ja line that is too\n  long\n");
}

TEST(WrappedStream, WhatHasNoEndIsWrittenAtTheLast) { EXPECT_EQ(wrapped("no end"), "no end"); }

}  // namespace
}  // namespace starling::telemetry

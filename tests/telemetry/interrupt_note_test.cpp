// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/interrupt_note.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace starling::telemetry {
namespace {

TEST(InterruptNote, IsPrintedAndTheProcessEndsAsItWouldHave) {
  const auto ends_by = [](int number) {
    InterruptNote note;
    note.set("first\n");
    note.set("go on\n");
    std::raise(number);
  };
  EXPECT_EXIT(ends_by(SIGINT), ::testing::KilledBySignal(SIGINT), "^go on\n$");
  EXPECT_EXIT(ends_by(SIGTERM), ::testing::KilledBySignal(SIGTERM), "^go on\n$");
}

TEST(InterruptNote, OfAProgramThatSavesItEndsWhenThatIsDoneOrAtTheSecondSignal) {
  const auto ends = [](bool twice) {
    InterruptNote note(InterruptNote::On::kAsk);
    note.set("saved\n");
    if (note.asked()) std::_Exit(5);
    std::raise(SIGINT);
    if (!note.asked()) std::_Exit(6);
    if (twice) std::raise(SIGTERM);
    note.end();
  };
  EXPECT_EXIT(ends(false), ::testing::KilledBySignal(SIGINT), "^saved\n$");
  EXPECT_EXIT(ends(true), ::testing::KilledBySignal(SIGTERM), "^saved\n$");
}

TEST(InterruptNote, WithoutATextTheProcessJustEnds) {
  EXPECT_EXIT(
      {
        const InterruptNote note;
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "^$");
}

TEST(InterruptNote, WhatIsIgnoredStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        const InterruptNote note;
        std::raise(SIGINT);
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(InterruptNote, LeavesTheHandlersOfBefore) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, [](int) { std::_Exit(5); });
        { const InterruptNote note; }
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace starling::telemetry

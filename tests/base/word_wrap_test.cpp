// SPDX-License-Identifier: Apache-2.0
#include "core/base/word_wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace starling {
namespace {

using ::testing::ElementsAre;

TEST(WordWrap, BreaksAtBlanks) {
  EXPECT_THAT(break_at_blanks("", 5), ElementsAre(""));
  EXPECT_THAT(break_at_blanks("ab cd", 5), ElementsAre("ab cd"));
  EXPECT_THAT(break_at_blanks("ab cde f", 5), ElementsAre("ab", "cde f"));
  EXPECT_THAT(break_at_blanks("ab   cde  ", 5), ElementsAre("ab", "cde  "));
  EXPECT_THAT(break_at_blanks("a 1234567 b", 5), ElementsAre("a", "1234567", "b"));
  EXPECT_THAT(break_at_blanks("1234567", 5), ElementsAre("1234567"));
  EXPECT_THAT(break_at_blanks("é é é", 3), ElementsAre("é é", "é"));
}

TEST(Wrap, GoesOnTwoColumnsIn) {
  EXPECT_EQ(wrap("one two three", 13), "one two three");
  EXPECT_EQ(wrap("one two three four", 9), "one two\n  three\n  four");
  EXPECT_EQ(wrap("one two three", 13, 4), "one two\n  three") << "of the first line 4 are taken";
  EXPECT_EQ(wrap("one", 9, 20), "one");
  EXPECT_EQ(wrap("one two   ", 8), "one two");
  EXPECT_EQ(wrap("", 9), "");
}

TEST(WrapBeside, GoesOnBelowTheBeginning) {
  EXPECT_EQ(wrap_beside("disk  ", "one two three", 13), "disk  one two\n      three");
  EXPECT_EQ(wrap_beside("disk  ", "one two three", SIZE_MAX), "disk  one two three");
  EXPECT_EQ(wrap_beside("disk  ", "one two", 4), "disk  one\n      two");
  EXPECT_EQ(wrap_beside("disk  ", "", 10), "disk  ");
}

}  // namespace
}  // namespace starling

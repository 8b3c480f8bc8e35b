// SPDX-License-Identifier: Apache-2.0
#include "core/base/utf8.h"

#include <gtest/gtest.h>

#include "tests/wire/random_message.h"

namespace starling {
namespace {

TEST(Utf8, WellFormedCharactersOfEachLengthPass) {
  // The ends of each row of table 3-7 of the Unicode standard.
  for (std::string_view text :
       {"", "\x01", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xE0\xBF\xBF", "\xE1\x80\x80",
        "\xEC\xBF\xBF", "\xED\x80\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80", "\xF0\xBF\xBF\xBF", "\xF1\x80\x80\x80", "\xF3\xBF\xBF\xBF",
        "\xF4\x80\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_TRUE(is_utf8("a" + std::string(text) + "b")) << text;
  }
  EXPECT_TRUE(is_utf8(std::string_view("\0a", 2)));
}

TEST(Utf8, MalformedSequencesAreFound) {
  for (std::string_view text : {"\x80",
                                "\xBF",
                                "\xC0\x80",
                                "\xC1\xBF",
                                "\xC2",
                                "\xC2\x7F",
                                "\xC2\xC0",
                                "\xE0\x9F\xBF",
                                "\xE0\xA0",
                                "\xE1\x80\x7F",
                                "\xE1\x80\xC0",
                                "\xED\xA0\x80",
                                "\xED\xBF\xBF",
                                "\xEF\xBF",
                                "\xF0\x8F\xBF\xBF",
                                "\xF0\x90\x80",
                                "\xF1\x80\x80\xC0",
                                "\xF4\x90\x80\x80",
                                "\xF5\x80\x80\x80",
                                "\xF8\x88\x80\x80\x80",
                                "\xFE",
                                "\xFF"}) {
    EXPECT_FALSE(is_utf8(text)) << ::testing::PrintToString(text);
    EXPECT_FALSE(is_utf8("a" + std::string(text) + "b")) << ::testing::PrintToString(text);
  }
}

TEST(CleanSentence, LeavesAlonePlainSentencesThatFit) {
  EXPECT_EQ(clean_sentence("", 8), "");
  EXPECT_EQ(clean_sentence("12345678", 8), "12345678");
  EXPECT_EQ(clean_sentence("123456\xC3\xA9", 8), "123456\xC3\xA9");
}

TEST(CleanSentence, CutsBetweenCharactersWithAnEllipsis) {
  EXPECT_EQ(clean_sentence("123456789", 8), "12345\xE2\x80\xA6");
  EXPECT_EQ(clean_sentence("1234\xC3\xA9\xC3\xA9\xC3\xA9", 8), "1234\xE2\x80\xA6");
  EXPECT_EQ(clean_sentence("\xF4\x8F\xBF\xBF\xF4\x8F\xBF\xBF", 6), "\xE2\x80\xA6");
  EXPECT_EQ(clean_sentence("1234", 3), "\xE2\x80\xA6");
}

TEST(CleanSentence, ReplacesEachMalformedByte) {
  EXPECT_EQ(clean_sentence("a\xFF"
                           "b",
                           8),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(clean_sentence("\xED\xA0", 8), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(clean_sentence("\xC3", 8), "\xEF\xBF\xBD");
}

TEST(CleanSentence, OfAnyBytesIsUtf8ThatFits) {
  Rng rng({.seed = 1});
  for (int i = 0; i < 2000; ++i) {
    std::string text = starling::testing::random_text(rng, 60);
    for (std::uint64_t k = rng.below(4); k > 0 && !text.empty(); --k) {
      text[rng.below(text.size())] = static_cast<char>(rng.below(256));
    }
    const std::size_t bytes_max = 3 + rng.below(60);
    const std::string clean = clean_sentence(text, bytes_max);
    ASSERT_TRUE(is_utf8(clean)) << "seed 1, number " << i;
    ASSERT_LE(clean.size(), bytes_max) << "seed 1, number " << i;
    if (is_utf8(text) && text.size() <= bytes_max) {
      ASSERT_EQ(clean, text);
    }
  }
}

}  // namespace
}  // namespace starling

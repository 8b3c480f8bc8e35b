// SPDX-License-Identifier: Apache-2.0
#include "core/base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace starling {
namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("serve", "sreve"), 1U) << "two swapped neighbours";
  EXPECT_EQ(edit_distance("ca", "abc"), 3U) << "optimal string alignment, not Damerau";
  EXPECT_EQ(edit_distance("a", "b"), edit_distance("b", "a"));
}

TEST(NearestName, IsNearOrNothing) {
  constexpr std::array<std::string_view, 3> kNames = {"serve", "simulate", "status"};
  EXPECT_EQ(nearest_name("sreve", kNames), "serve");
  EXPECT_EQ(nearest_name("simulat", kNames), "simulate");
  EXPECT_EQ(nearest_name("export", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(suggestion("stats", kNames), "; did you mean 'status'?");
  EXPECT_EQ(suggestion("qqq", kNames), "");
}

TEST(NearestName, ListsRead) {
  constexpr std::array<std::string_view, 3> kNames = {"a", "b", "c"};
  EXPECT_EQ(join_names(kNames), "a, b and c");
  EXPECT_EQ(join_names(std::span(kNames).first(2), "or"), "a or b");
  EXPECT_EQ(join_names(std::span(kNames).first(1)), "a");
  EXPECT_EQ(join_names({}), "");
}

TEST(Printable, IsOneShortLine) {
  EXPECT_EQ(printable("a\nb\x1b\x7f"), "a?b??");
  EXPECT_EQ(printable(std::string(64, 'x')), std::string(64, 'x'));
  EXPECT_EQ(printable(std::string(65, 'x')), std::string(64, 'x') + "...");
  const std::string face = "\xF0\x9F\x98\x80";  // one character of four bytes
  for (std::size_t bytes = 4; bytes < 8; ++bytes) {
    EXPECT_EQ(printable(face + face, bytes), face + "...") << bytes;
  }
  EXPECT_EQ(printable(face, 3), "...");
  EXPECT_EQ(printable(face + face, 8), face + face);
}

}  // namespace
}  // namespace starling

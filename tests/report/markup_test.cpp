// SPDX-License-Identifier: Apache-2.0
#include "core/report/markup.h"

#include <gtest/gtest.h>

namespace starling::report {
namespace {

TEST(Escape, LeavesNoMarkup) {
  EXPECT_EQ(escape("<a b=\"c\" d='e'>&amp;"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;amp;");
  EXPECT_EQ(escape("λ – 日本 😀\n\t"), "λ – 日本 😀\n\t");
}

TEST(Escape, ReplacesWhatIsNotText) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(escape(std::string_view("a\0b\x01\x7F", 5)), "a" + mark + "b" + mark + mark);
  EXPECT_EQ(escape("\xFF"), mark);
  EXPECT_EQ(escape("\xE2\x82"), mark + mark);             // cut short
  EXPECT_EQ(escape("\xC0\xBC"), mark + mark);             // an overlong '<'
  EXPECT_EQ(escape("\xED\xA0\x80"), mark + mark + mark);  // half a surrogate pair
}

TEST(Units, HaveATenthAtMost) {
  EXPECT_EQ(units(12), "12");
  EXPECT_EQ(units(12.34), "12.3");
  EXPECT_EQ(units(-0.04), "0");
}

TEST(DataUri, IsBase64) {
  EXPECT_EQ(data_uri("a/b", ""), "data:a/b;base64,");
  EXPECT_EQ(data_uri("a/b", "f"), "data:a/b;base64,Zg==");
  EXPECT_EQ(data_uri("a/b", "fo"), "data:a/b;base64,Zm8=");
  EXPECT_EQ(data_uri("a/b", "foobar"), "data:a/b;base64,Zm9vYmFy");
}

TEST(EscapeName, KeepsEachSettingOnALineUnlessItIsLong) {
  EXPECT_EQ(escape_name("ring"), "ring");
  EXPECT_EQ(escape_name("learning-rate <1"), "learning-rate &lt;1") << "all of it";
  EXPECT_EQ(escape_name("ring, local-steps 8, iid"),
            "ring, <span class=\"part\">local-steps 8,</span> iid");
  EXPECT_EQ(escape_name("a & b, x"), "<span class=\"part\">a &amp; b,</span> x");
  const std::string path = "csv:" + std::string(40, 'a') + "/train.csv";
  EXPECT_EQ(escape_name(path + ", loss 0"), path + ", <span class=\"part\">loss 0</span>");
  EXPECT_EQ(escape_name("a, "), "a, ");
  EXPECT_EQ(escape_name(""), "");
}

}  // namespace
}  // namespace starling::report

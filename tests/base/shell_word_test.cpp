// SPDX-License-Identifier: Apache-2.0
#include "core/base/shell_word.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(ShellWord, IsQuotedOnlyWhereAShellWouldReadSomethingElse) {
  EXPECT_EQ(shell_word("/srv/hub-1.d"), "/srv/hub-1.d");
  EXPECT_EQ(shell_word("a kitchen"), "'a kitchen'");
  EXPECT_EQ(shell_word("it's $HOME"), R"('it'\''s $HOME')");
  EXPECT_EQ(shell_word("küche"), "'küche'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace starling

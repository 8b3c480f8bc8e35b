// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment(const Variables& variables) {
  return [variables](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

class PseudoTerminal {
 public:
  PseudoTerminal() : leader_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    ::grantpt(leader_);
    ::unlockpt(leader_);
    terminal_ = ::open(::ptsname(leader_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 50, .ws_col = 132, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(leader_, TIOCSWINSZ, &size);
  }
  ~PseudoTerminal() {
    ::close(terminal_);
    ::close(leader_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  int descriptor() const { return terminal_; }

 private:
  int leader_;
  int terminal_ = -1;
};

TEST(Terminal, APipeIsNone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Terminal terminal =
      detect_terminal(ends[1], environment({{"COLUMNS", "100"}, {"LANG", "en_GB.UTF-8"}}));
  EXPECT_FALSE(terminal.interactive);
  EXPECT_FALSE(terminal.colour);
  EXPECT_TRUE(terminal.unicode);
  EXPECT_EQ(terminal.columns, 100);
  EXPECT_EQ(terminal.line_max, 100U) << "as COLUMNS asks";
  EXPECT_EQ(detect_terminal(ends[1], environment({})).line_max, SIZE_MAX);
  EXPECT_EQ(terminal.rows, 24);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Terminal, ATerminalHasItsOwnWidth) {
  const PseudoTerminal pty;
  const Terminal terminal = detect_terminal(
      pty.descriptor(), environment({{"TERM", "xterm"}, {"LANG", "C.UTF-8"}, {"COLUMNS", "40"}}));
  EXPECT_TRUE(terminal.interactive);
  EXPECT_TRUE(terminal.colour);
  EXPECT_EQ(terminal.columns, 132);
  EXPECT_EQ(terminal.rows, 50);
}

TEST(Terminal, WishesAreRespected) {
  const PseudoTerminal pty;
  EXPECT_FALSE(detect_terminal(pty.descriptor(), environment({{"NO_COLOR", "1"}})).colour);
  EXPECT_TRUE(detect_terminal(pty.descriptor(), environment({{"NO_COLOR", ""}})).colour);
  EXPECT_FALSE(detect_terminal(pty.descriptor(), environment({{"TERM", "dumb"}})).interactive);
  EXPECT_FALSE(detect_terminal(1, environment({{"LC_ALL", "C"}, {"LANG", "de_DE.UTF-8"}})).unicode);
  EXPECT_FALSE(detect_terminal(1, environment({})).unicode);
}

TEST(Terminal, TextIsMeasuredInCharacters) {
  EXPECT_EQ(starling::columns_of("naïve ▏"), 7U);
  EXPECT_EQ(fit("naïve", 3), "naï");
  EXPECT_EQ(fit("naïve", 2), "na");
  EXPECT_EQ(fit("naïve", 9), "naïve");
  EXPECT_EQ(fit("naïve", 0), "");
}

TEST(Terminal, TheLeadingFactsOfALineFit) {
  const std::string line = "[round 3/20] loss 0.41  accuracy 0.84  in 38.4 MB";
  EXPECT_EQ(leading_facts(line, SIZE_MAX), line);
  EXPECT_EQ(leading_facts(line, line.size()), line);
  EXPECT_EQ(leading_facts(line, line.size() - 1), "[round 3/20] loss 0.41  accuracy 0.84");
  EXPECT_EQ(leading_facts(line, 24), "[round 3/20] loss 0.41");
  EXPECT_EQ(leading_facts(line, 3), "[round 3/20] loss 0.41") << "never less than the first";
}

}  // namespace
}  // namespace starling::telemetry

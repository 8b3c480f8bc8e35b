// SPDX-License-Identifier: Apache-2.0
#include "core/net/refusal_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace starling::net {
namespace {

class LinesLog final : public Log {
 public:
  explicit LinesLog(EventLoop& loop) : loop_(loop) {}
  void write(LogLevel, std::string_view line) override {
    lines.emplace_back(line);
    if (line.ends_with("(slow)")) loop_.stop();
  }
  std::vector<std::string> lines;

 private:
  EventLoop& loop_;
};

TEST(RefusalLog, CountsWhatWouldFloodTheLog) {
  EventLoop loop;
  LinesLog log(loop);
  RefusalLog refusals(loop, log, "refused", std::chrono::milliseconds(1));
  for (int i = 0; i < 1000; ++i) refusals.say("10.0.0.1", overloaded("rate-limited", "too often"));
  for (int i = 0; i < 3; ++i) refusals.say("10.0.0.2", retry("slow", "too slow"));
  loop.run();
  EXPECT_EQ(log.lines, (std::vector<std::string>{"refused 10.0.0.1: rate-limited: too often",
                                                 "refused 10.0.0.2: slow: too slow",
                                                 "refused 999 more connections (rate-limited)",
                                                 "refused 2 more connections (slow)"}));
}

}  // namespace
}  // namespace starling::net

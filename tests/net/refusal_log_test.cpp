// SPDX-License-Identifier: Apache-2.0
#include "core/net/refusal_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace starling::net {
namespace {

class LinesLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    lines.emplace_back(line);
    on_line();
  }
  std::vector<std::string> lines;
  std::function<void()> on_line = [] {};
};

class RefusalLogTest : public ::testing::Test {
 protected:
  // Runs until so many lines are written.
  void run_until(std::size_t lines) {
    log.on_line = [this, lines] {
      if (log.lines.size() >= lines) loop.stop();
    };
    loop.run();
  }

  static constexpr auto kPause = std::chrono::milliseconds(1);
  const Error expired = rejected("certificate-expired", "the certificate of cam-7 expired");
  EventLoop loop;
  LinesLog log;
  RefusalLog refusals{loop, log, "refused", kPause};
};

TEST_F(RefusalLogTest, CountsWhatWouldFloodTheLog) {
  for (int i = 0; i < 1000; ++i) refusals.say("10.0.0.1", overloaded("rate-limited", "too often"));
  for (int i = 0; i < 3; ++i) refusals.say("10.0.0.2", retry("slow", "too slow"));
  run_until(4);
  EXPECT_EQ(log.lines, (std::vector<std::string>{"refused 10.0.0.1: rate-limited: too often",
                                                 "refused 10.0.0.2: slow: too slow",
                                                 "refused 10.0.0.1 999 times more: rate-limited",
                                                 "refused 10.0.0.2 2 times more: slow"}));
}

TEST_F(RefusalLogTest, AnotherAddressIsNamedWhileOneIsCounted) {
  refusals.say("10.0.0.1", rejected("certificate-expired", "expired, judged at 09:00"));
  refusals.say("10.0.0.1", rejected("certificate-expired", "expired, judged at 09:01"));
  refusals.say("10.0.0.2", expired);
  EXPECT_EQ(log.lines,
            (std::vector<std::string>{
                "refused 10.0.0.1: certificate-expired: expired, judged at 09:00",
                "refused 10.0.0.2: certificate-expired: the certificate of cam-7 expired"}));
}

// A device that dials all day, here at every line that is written about it.
TEST_F(RefusalLogTest, ThePauseBetweenLinesDoublesUpToItsLimit) {
  std::vector<TimePoint> times;
  log.on_line = [&] {
    times.push_back(loop.now());
    if (times.size() > 9) return loop.stop();
    loop.post([this] { refusals.say("10.0.0.1", expired); });
  };
  // Pauses count from before a line is written, so their sum is what the times must keep.
  TimePoint earliest = loop.now();
  refusals.say("10.0.0.1", expired);
  loop.run();
  int pauses = 1;
  for (std::size_t i = 1; i < times.size(); ++i) {
    earliest += kPause * pauses;
    EXPECT_GE(times[i], earliest) << i;
    pauses = std::min(2 * pauses, RefusalLog::kPausesMax);
  }
}

TEST_F(RefusalLogTest, ManyAddressesShareALine) {
  for (int i = 0; i < 1000; ++i) refusals.say("10.0.0." + std::to_string(i), expired);
  EXPECT_EQ(log.lines.size(), RefusalLog::kAddressesMax + 1);
  run_until(RefusalLog::kAddressesMax + 2);
  EXPECT_EQ(log.lines.back(),
            "refused 983 more connections of other addresses: certificate-expired");
}

}  // namespace
}  // namespace starling::net

// SPDX-License-Identifier: Apache-2.0
// Log lines about refused connections. Anyone can be refused any number of times, and a device with
// an expired certificate dials again and again: so the first refusal gets a line, and repetitions
// of it from the same address get one line with their count after a minute, then after two, four,
// and so on up to an hour. Addresses beyond the first few that share a reason code are counted
// together.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/net/alarm.h"

namespace starling::net {

class RefusalLog {
 public:
  static constexpr std::size_t kAddressesMax = 16;  // with their own lines, for each reason code
  static constexpr int kPausesMax = 60;             // the longest pause is this many first pauses

  // `what` begins the lines: "refused". `pause`: from the first line to the first with a count.
  // Loop and log must outlive this.
  RefusalLog(EventLoop& loop, Log& log, std::string what, Duration pause = std::chrono::minutes(1));

  // "refused ADDRESS: CODE: MESSAGE", or counts it for "refused ADDRESS 59 times more: CODE" and
  // "refused 812 more connections of other addresses: CODE".
  void say(const std::string& address, const Error& error);

 private:
  struct Refusal {
    std::string code;
    std::string address;  // empty: all others
    friend auto operator<=>(const Refusal&, const Refusal&) = default;
  };
  struct Repetition {
    std::uint64_t unsaid = 0;
    Duration pause{};
    TimePoint next{};  // of a line with the count
    TimePoint last{};  // that it happened
  };

  Refusal known_as(const std::string& address, const Error& error) const;
  void flush();
  void set_alarm();

  EventLoop& loop_;
  Log& log_;
  const std::string what_;
  const Duration pause_;
  std::map<Refusal, Repetition> said_;  // bounded: reason codes are few
  Alarm alarm_;
};

}  // namespace starling::net

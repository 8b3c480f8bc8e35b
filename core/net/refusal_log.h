// SPDX-License-Identifier: Apache-2.0
// The log's lines about those who are turned away. Anybody can be turned away as often as he likes,
// so each reason code gets a line at the first, and then one in a period with the count.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/net/alarm.h"

namespace starling::net {

class RefusalLog {
 public:
  // `what` begins the lines: "refused". Loop and log must outlive this.
  RefusalLog(EventLoop& loop, Log& log, std::string what,
             Duration period = std::chrono::seconds(1));

  // "refused ADDRESS: CODE: MESSAGE", or counts it for "refused 812 more connections (CODE)".
  void say(const std::string& address, const Error& error);

 private:
  void flush();

  EventLoop& loop_;
  Log& log_;
  const std::string what_;
  const Duration period_;
  std::map<std::string, std::uint64_t> unsaid_;  // by the codes of this period; they are few
  Alarm alarm_;
};

}  // namespace starling::net

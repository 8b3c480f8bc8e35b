// SPDX-License-Identifier: Apache-2.0
#include "core/net/refusal_log.h"

namespace starling::net {

RefusalLog::RefusalLog(EventLoop& loop, Log& log, std::string what, Duration period)
    : loop_(loop), log_(log), what_(std::move(what)), period_(period), alarm_(loop, [this] {
        flush();
      }) {}

void RefusalLog::say(const std::string& address, const Error& error) {
  if (unsaid_.empty()) alarm_.set(loop_.now() + period_);
  const auto [entry, first] = unsaid_.try_emplace(error.code(), 0);
  if (!first) return ++entry->second, void();
  log_.warning("{} {}: {}: {}", what_, address, error.code(), error.message());
}

// A code that was counted stays for another period, so that no line follows on the other's heels.
void RefusalLog::flush() {
  std::erase_if(unsaid_, [](const auto& entry) { return entry.second == 0; });
  for (auto& [code, count] : unsaid_) {
    log_.warning("{} {} more connections ({})", what_, count, code);
    count = 0;
  }
  if (!unsaid_.empty()) alarm_.set(loop_.now() + period_);
}

}  // namespace starling::net

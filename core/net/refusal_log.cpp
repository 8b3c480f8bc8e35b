// SPDX-License-Identifier: Apache-2.0
#include "core/net/refusal_log.h"

#include <algorithm>

namespace starling::net {

RefusalLog::RefusalLog(EventLoop& loop, Log& log, std::string what, Duration pause)
    : loop_(loop), log_(log), what_(std::move(what)), pause_(pause), alarm_(loop, [this] {
        flush();
      }) {}

RefusalLog::Refusal RefusalLog::known_as(const std::string& address, const Error& error) const {
  Refusal refusal{error.code(), address};  // a message may say the time, and so be new each time
  if (said_.contains(refusal)) return refusal;
  const auto count = static_cast<std::size_t>(
      std::ranges::count(said_, error.code(),
                         [](const auto& entry) -> const std::string& { return entry.first.code; }));
  if (count >= kAddressesMax) return {error.code(), ""};
  return refusal;
}

void RefusalLog::say(const std::string& address, const Error& error) {
  const TimePoint now = loop_.now();
  const auto [entry, first] = said_.try_emplace(known_as(address, error));
  Repetition& repetition = entry->second;
  repetition.last = now;
  if (!first) return ++repetition.unsaid, void();
  repetition.pause = pause_;
  repetition.next = now + pause_;
  log_.warning("{} {}: {}: {}", what_, address, error.code(), error.message());
  set_alarm();
}

void RefusalLog::flush() {
  const TimePoint now = loop_.now();
  for (auto& [refusal, repetition] : said_) {
    if (now < repetition.next) continue;
    if (repetition.unsaid > 0) {
      if (refusal.address.empty()) {
        log_.warning("{} {} more connections of other addresses: {}", what_, repetition.unsaid,
                     refusal.code);
      } else {
        log_.warning("{} {} {} times more: {}", what_, refusal.address, repetition.unsaid,
                     refusal.code);
      }
      repetition.unsaid = 0;
      repetition.pause = std::min(2 * repetition.pause, kPausesMax * pause_);
    }
    repetition.next = now + repetition.pause;
  }
  // What has not happened for twice the longest pause is news when it happens again.
  std::erase_if(said_, [&](const auto& entry) {
    return entry.second.unsaid == 0 && now - entry.second.last >= 2 * kPausesMax * pause_;
  });
  set_alarm();
}

void RefusalLog::set_alarm() {
  if (said_.empty()) return alarm_.clear();
  const auto first =
      std::ranges::min_element(said_, {}, [](const auto& entry) { return entry.second.next; });
  alarm_.set(first->second.next);
}

}  // namespace starling::net

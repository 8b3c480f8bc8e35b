// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/retries.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "core/base/clock.h"
#include "core/client/trainer_host.h"

namespace starling::gossip {
namespace {

constexpr Duration kPauseMin = std::chrono::seconds(1);
constexpr Duration kPauseMax = std::chrono::minutes(1);
constexpr Duration kLook = std::chrono::milliseconds(100);  // between two looks at `stop`
constexpr int kDoublingsMax = 6;

// The trainer's process failed, rather than what it was asked for.
bool is_process_failure(const Error& error) {
  return error.code().starts_with("trainer-") && !client::is_answer(error);
}

// No other attempt can end otherwise.
bool is_final(const Error& error) {
  if (is_process_failure(error)) return false;
  return error.code() == "stopped" || error.code() == "diverged" || error.code() == "io-error" ||
         error.kind() == ErrorKind::kUnsupported || error.category() == ErrorCategory::kUsage;
}

}  // namespace

bool Retries::follows(const std::string& client, const Error& error, int attempt) const {
  if (is_final(error) || stop.load(std::memory_order_relaxed)) return false;
  const bool patient = attempts_max == 0;
  if (!patient && (!is_process_failure(error) || attempt >= attempts_max)) return false;
  if (!patient) {
    warn(fmt::format("{}: {}; retrying", client, error.message()));
    return true;
  }
  const Duration pause =
      std::min(kPauseMax, kPauseMin * (1L << std::min(attempt - 1, kDoublingsMax)));
  warn(fmt::format("{}: {}; retrying in {}", client, error.message(), format_duration(pause)));
  const TimePoint until = SystemClock().now() + pause;
  while (!stop.load(std::memory_order_relaxed) && SystemClock().now() < until) {
    std::this_thread::sleep_for(kLook);
  }
  return !stop.load(std::memory_order_relaxed);
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/swim_options.h"

#include <cmath>
#include <string>
#include <string_view>

namespace starling::gossip::membership {
namespace {

Result<void> expect(bool condition, std::string_view sentence) {
  if (condition) return {};
  return wrong_setting("bad-swim-option", std::string(sentence));
}

bool at_least(double value, double min) { return std::isfinite(value) && value >= min; }

}  // namespace

Result<void> validate(const SwimOptions& o) {
  using std::chrono::hours;
  const auto is_wait = [](Duration wait) { return wait > Duration::zero() && wait <= hours(24); };
  STARLING_TRY(expect(is_wait(o.probe_period) && is_wait(o.dead_probe_period),
                      "a probe period is above 0 and at most 24h"));
  STARLING_TRY(expect(is_wait(o.probe_timeout_min) && is_wait(o.probe_timeout_max) &&
                          o.probe_timeout_min <= o.probe_timeout_first &&
                          o.probe_timeout_first <= o.probe_timeout_max,
                      "the probe timeouts are 0 < min <= first <= max <= 24h"));
  STARLING_TRY(expect(o.indirect_probes <= 64 && o.confirmations <= 64,
                      "at most 64 are asked to probe or waited for to confirm"));
  STARLING_TRY(expect(at_least(o.suspicion_min_factor, 1) && at_least(o.suspicion_max_factor, 1) &&
                          o.suspicion_min_factor <= 1000 && o.suspicion_max_factor <= 1000,
                      "a suspicion factor is 1 to 1000"));
  STARLING_TRY(expect(at_least(o.dissemination, 0.1) && o.dissemination <= 100,
                      "dissemination is 0.1 to 100"));
  STARLING_TRY(expect(o.news_max >= 3 && o.news_max <= 64, "news-max is 3 to 64"));
  STARLING_TRY(expect(o.health_max <= 64, "health-max is at most 64"));
  return expect(is_wait(o.late_min), "late-min is above 0 and at most 24h");
}

}  // namespace starling::gossip::membership

// SPDX-License-Identifier: Apache-2.0
#include "core/sim/population.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/sim/value_file.h"

namespace starling::sim {
namespace {

// Streams of Purpose::kNodes, told apart by the attempt.
enum Stream : std::uint32_t { kSpeed = 1, kStep = 2, kPresence = 3, kStragglers = 4 };

// Slower than this is as good as away.
constexpr double kSpeedMin = 1e-6;
constexpr double kSpeedMax = 1e6;

Rng stream(std::uint64_t seed, Stream which, std::uint64_t node, std::uint64_t step = 0) {
  return Rng({.seed = seed,
              .purpose = Purpose::kNodes,
              .node = node,
              .round = static_cast<std::uint32_t>(step),
              .attempt = which | (static_cast<std::uint32_t>(step >> 32) << 8)});
}

// A time of whole nanoseconds, so that a file can hold it as it is. What no Duration holds is
// never.
double in_file(double seconds) {
  constexpr double kLongest = 8e9;
  return seconds > kLongest ? kNever : to_seconds(from_seconds(seconds));
}

double exponential(Rng& rng, double mean) { return -mean * std::log1p(-rng.uniform()); }

}  // namespace

Result<Population> Population::make(const NodeOptions& options, std::uint32_t nodes,
                                    std::uint64_t seed) {
  Population population;
  population.seed_ = seed;
  population.options_ = options;
  STARLING_ASSIGN(const auto speed,
                  Distribution::parse(options.speed, Unit::kFactor, "nodes.speed"));
  if (speed.constant() && speed.least() == 0) {
    return wrong_setting("bad-distribution",
                         "nodes.speed: no node has a speed of 0; slow nodes are "
                         "0.1 or so, and nodes.presence says who is away");
  }
  STARLING_ASSIGN(population.step_jitter_,
                  Distribution::parse(options.step_jitter, Unit::kFactor, "nodes.step-jitter"));
  population.speeds_.resize(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    Rng rng = stream(seed, kSpeed, node);
    const double drawn = std::max(speed.draw(rng), kSpeedMin);
    population.speeds_[node] = static_cast<float>(drawn);
  }
  population.slow_down_stragglers();
  if (!options.speeds.empty()) STARLING_TRY(population.read_speeds(options.speeds));
  population.churns_ = options.join_within > Duration::zero() ||
                       options.leave_after > Duration::zero() ||
                       options.crash_every > Duration::zero();
  if (population.churns_ || !options.presence.empty()) population.begin_lives(nodes);
  if (!options.presence.empty()) STARLING_TRY(population.read_presence(options.presence));
  return population;
}

void Population::slow_down_stragglers() {
  std::vector<std::uint32_t> drawn(speeds_.size());
  std::iota(drawn.begin(), drawn.end(), 0U);
  Rng rng = stream(seed_, kStragglers, 0);
  rng.shuffle(std::span(drawn));
  drawn.resize(static_cast<std::size_t>(
      std::llround(options_.stragglers * static_cast<double>(drawn.size()))));
  for (const std::uint32_t node : drawn) {
    speeds_[node] /= static_cast<float>(options_.slowdown);
  }
}

Result<void> Population::read_speeds(const std::string& path) {
  STARLING_ASSIGN(auto row, ValueFile::open(path, "nodes.speeds", {"node", "speed"}, {}));
  std::vector<bool> said(speeds_.size());
  for (;;) {
    STARLING_ASSIGN(const bool more, row.next());
    if (!more) return {};
    STARLING_ASSIGN(const std::uint32_t node,
                    row.node("node", static_cast<std::uint32_t>(speeds_.size())));
    if (said[node]) return row.wrong("node", "has a row already");
    said[node] = true;
    STARLING_ASSIGN(const auto speed, row.value("speed", Unit::kFactor));
    if (!speed) return row.wrong("speed", "is not a number");
    if (!(*speed >= kSpeedMin && *speed <= kSpeedMax)) {
      return row.wrong("speed", "is not between 0.000001 and 1000000");
    }
    speeds_[node] = static_cast<float>(*speed);
  }
}

void Population::begin_lives(std::uint32_t nodes) {
  presences_.reserve(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    Presence presence{.rng = stream(seed_, kPresence, node), .leaves = kNever, .changes = {}};
    const double joins = to_seconds(options_.join_within) * presence.rng.uniform();
    const double stays = exponential(presence.rng, to_seconds(options_.leave_after));
    if (options_.leave_after > Duration::zero()) presence.leaves = joins + stays;
    presence.changes.push_back(in_file(joins));
    presences_.push_back(std::move(presence));
  }
}

// A node with a row is there at the times of its rows alone; the others as drawn.
Result<void> Population::read_presence(const std::string& path) {
  STARLING_ASSIGN(auto row,
                  ValueFile::open(path, "nodes.presence", {"node", "joins", "leaves"}, {}));
  churns_ = true;
  std::vector<bool> said(presences_.size());
  for (;;) {
    STARLING_ASSIGN(const bool more, row.next());
    if (!more) break;
    STARLING_ASSIGN(const std::uint32_t node,
                    row.node("node", static_cast<std::uint32_t>(presences_.size())));
    STARLING_ASSIGN(const auto joins, row.value("joins", Unit::kDuration));
    STARLING_ASSIGN(const auto leaves, row.value("leaves", Unit::kDuration));
    std::vector<double>& changes = presences_[node].changes;
    if (!said[node]) changes.clear();
    said[node] = true;
    const double before = changes.empty() ? -1 : changes.back();
    if (before == kNever) return row.wrong("node", "does not leave in its row above");
    if (joins.value_or(kNever) <= before) {
      return row.wrong("joins", "is not after it left in its row above");
    }
    if (leaves && *leaves <= joins.value_or(kNever)) {
      return row.wrong("leaves", "is not after it joins");
    }
    changes.push_back(joins.value_or(kNever));
    if (joins) changes.push_back(leaves.value_or(kNever));
  }
  for (std::uint32_t node = 0; node < presences_.size(); ++node) {
    std::vector<double>& changes = presences_[node].changes;
    if (said[node] && changes.back() != kNever) changes.push_back(kNever);
  }
  return {};
}

double Population::step_seconds(std::uint32_t node, std::uint64_t step) const {
  const double seconds = to_seconds(options_.step_time) / static_cast<double>(speeds_[node]);
  if (step_jitter_.constant()) return seconds * step_jitter_.least();
  Rng rng = stream(seed_, kStep, node, step);
  return seconds * step_jitter_.draw(rng);
}

std::size_t Population::changes_until(std::uint32_t node, double time) const {
  Presence& presence = presences_[node];
  const double crash_mean = to_seconds(options_.crash_every);
  while (presence.changes.back() <= time) {
    const bool is_there = presence.changes.size() % 2 == 1;
    const double last = presence.changes.back();
    double next = is_there
                      ? last + (crash_mean > 0 ? exponential(presence.rng, crash_mean) : kNever)
                      : last + exponential(presence.rng, to_seconds(options_.return_after));
    // Who has left does not return.
    if (is_there) next = std::min(next, presence.leaves);
    if (!is_there && (last >= presence.leaves || next >= presence.leaves)) next = kNever;
    presence.changes.push_back(std::max(last, in_file(next)));
  }
  return static_cast<std::size_t>(
      std::upper_bound(presence.changes.begin(), presence.changes.end(), time) -
      presence.changes.begin());
}

double Population::up_from(std::uint32_t node, double time) const {
  if (!churns_) return time;
  const std::size_t next = changes_until(node, time);
  return next % 2 == 1 ? time : presences_[node].changes[next];
}

double Population::up_until(std::uint32_t node, double time) const {
  if (!churns_) return kNever;
  const std::size_t next = changes_until(node, time);
  return next % 2 == 1 ? presences_[node].changes[next] : time;
}

std::vector<double> Population::changes(std::uint32_t node, double time) const {
  const auto next = static_cast<std::ptrdiff_t>(changes_until(node, time));
  const std::vector<double>& all = presences_[node].changes;
  return {all.begin(), all.begin() + next + 1};
}

}  // namespace starling::sim

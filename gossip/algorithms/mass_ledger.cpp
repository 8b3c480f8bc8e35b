// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/mass_ledger.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/check.h"

namespace starling::gossip {
namespace {

constexpr double kLargest = 0x1p20;  // far from where sums of shares could wrap around
constexpr double kLittleWeight = 0x1p-6;
constexpr std::uint32_t kDrainedAfter = 8;
constexpr double kTakenMost = 0.75;
constexpr double kReturn = 0x1p-10;   // of the way to 1, at each settle()
constexpr double kRounded = 0x1p-20;  // a difference from 1 that shares leave by their rounding

MassLedger::Fixed fixed(double x) {
  return static_cast<MassLedger::Fixed>(std::llrint(x / MassLedger::kUnit));
}

}  // namespace

template <class T>
void MassLedger::reset(std::span<const T> model) {
  for (Fixed& x : mass_) x = 0;
  mass_.back() = kOne;
  overflowed_ = false;
  add(model, 1);
}

template <class T>
void MassLedger::add(std::span<const T> update, double factor) {
  STARLING_CHECK(update.size() == size());
  for (std::size_t i = 0; i < update.size(); ++i) {
    const double change = factor * static_cast<double>(update[i]);
    if (!(std::abs(value(mass_[i]) + change) < kLargest)) {
      overflowed_ = true;
      return;
    }
    mass_[i] += fixed(change);
  }
}

void MassLedger::settle() {
  double settled = std::min(weight(), most_weight(members_));
  const bool heard = heard_somebody();
  if (heard) little_for_ = weight() < kLittleWeight ? little_for_ + 1 : 0;
  const bool returns = balanced_ && heard && std::abs(1 - settled) > kRounded;
  if (returns) settled += kReturn * (1 - settled);
  if (settled != weight()) scale(settled);
  for (const auto& [from, pulled] : pulled_) {
    if (!pulled.empty()) passed_on_[from] = pulled.back();
  }
}

bool MassLedger::heard_somebody() const {
  return std::ranges::any_of(
      pulled_, [this](const auto& edge) { return pulled_since_push(edge.first) != 0; });
}

// To this weight; z stays.
void MassLedger::scale(double to) {
  const double factor = to / weight();
  const Fixed before = mass_.back();
  for (Fixed& x : mass_) {
    const double scaled = factor * value(x);
    if (!(std::abs(scaled) < kLargest)) {
      overflowed_ = true;
      return;
    }
    x = fixed(scaled);
  }
  made_ += mass_.back() - before;
}

double MassLedger::taken(Node other) const {
  const auto last = [](std::span<const Fixed> total) { return total.empty() ? 0 : total.back(); };
  const auto before = taken_.find(other);
  return value(last(pushed(other)) - last(pulled(other))) +
         (before == taken_.end() ? 0 : before->second);
}

bool MassLedger::is_drained_by(Node other) const {
  return little_for_ >= kDrainedAfter && taken(other) > kTakenMost + std::max(0.0, value(made_));
}

double MassLedger::share(const Links& links, const topologies::Weight& receiver) {
  if (!links.is_sender(receiver.node) || !is_drained_by(receiver.node)) return receiver.weight;
  drained_by_ = receiver.node;
  return 0;
}

std::span<const std::byte> MassLedger::push(Node to, double fraction) {
  Totals& total = pushed_[to];
  total.resize(mass_.size());
  if (weight() < kLeastWeight) fraction = 0;
  for (std::size_t i = 0; i < mass_.size(); ++i) {
    const Fixed share = fixed(fraction * value(mass_[i]));
    mass_[i] -= share;
    total[i] += share;
  }
  return std::as_bytes(std::span<const Fixed>(total));
}

double MassLedger::weight_of(std::span<const std::byte> total) {
  Fixed weight = 0;
  STARLING_CHECK(total.size() >= sizeof weight);
  std::memcpy(&weight, total.last(sizeof weight).data(), sizeof weight);
  return value(weight);
}

void MassLedger::open(Node from) { pulled_[from].resize(mass_.size()); }

void MassLedger::pull(Node from, std::span<const std::byte> total, Columns elements) {
  STARLING_CHECK(total.size() == mass_.size() * sizeof(Fixed));
  const auto edge = pulled_.find(from);
  STARLING_CHECK(edge != pulled_.end());
  double part = 1;  // that is taken; the weight is pulled last
  if (balanced_) {
    Fixed weight = 0;
    std::memcpy(&weight, total.last(sizeof weight).data(), sizeof weight);
    const double come = value(weight - edge->second.back());
    const double room = most_weight(members_) - value(pulled_since_push(from));
    if (come > room) part = std::max(0.0, room) / come;
  }
  for (std::size_t i = elements.begin; i < elements.end; ++i) {
    Fixed now = 0;
    std::memcpy(&now, total.data() + i * sizeof now, sizeof now);
    const Fixed come = now - edge->second[i];
    const Fixed taken = part < 1 ? fixed(part * value(come)) : come;
    mass_[i] += taken;
    edge->second[i] = now;
    if (i == size()) made_ -= come - taken;
  }
}

// The weight that came from there since the last push.
MassLedger::Fixed MassLedger::pulled_since_push(Node from) const {
  const auto edge = pulled_.find(from);
  const auto passed_on = passed_on_.find(from);
  return (edge == pulled_.end() || edge->second.empty() ? 0 : edge->second.back()) -
         (passed_on == passed_on_.end() ? 0 : passed_on->second);
}

bool MassLedger::is_plausible(Node from, std::span<const std::byte> total) const {
  if (total.size() != mass_.size() * sizeof(Fixed)) return false;
  const auto edge = pulled_.find(from);
  const Fixed* const before =
      edge == pulled_.end() || edge->second.empty() ? nullptr : edge->second.data();
  constexpr Fixed kBound = static_cast<Fixed>(kLargest) * kOne;
  constexpr Fixed kHeld = kBound / 2;
  bool within = true;
  bool changes = false;  // but for the weight
  Fixed change = 0;
  for (std::size_t i = 0; i < mass_.size(); ++i) {
    Fixed now = 0;
    std::memcpy(&now, total.data() + i * sizeof now, sizeof now);
    changes |= change != 0;
    change = now - (before == nullptr ? 0 : before[i]);
    within &= change + kBound < 2 * kBound && mass_[i] + change + kHeld < 2 * kHeld;
  }
  const Fixed weight = change;  // the last
  if (!within || weight >= kBound || (weight == 0 && changes)) return false;
  return balanced_ || value(pulled_since_push(from) + weight) <= most_weight(members_);
}

void MassLedger::forget(Node other) {
  taken_[other] = std::max(0.0, taken(other));
  for (auto* totals : {&pushed_, &pulled_}) {
    const auto edge = totals->find(other);
    const bool is_zero = edge == totals->end() || edge->second.empty() || edge->second.back() == 0;
    if (is_zero) continue;  // without weight there is nothing else
    for (Fixed& x : edge->second) x = 0;
  }
  passed_on_.erase(other);
}

void MassLedger::archive(Archive& state) {
  state.elements(std::span(mass_));
  state(overflowed_);
  state(made_);
  state(little_for_);
  for (auto* totals : {&pushed_, &pulled_}) {
    state.map(*totals, [&](Totals& total) {
      state.vector(total);
      state.expect(total.empty() || total.size() == mass_.size());
    });
  }
  state.map(passed_on_, [&](Fixed& weight) { state(weight); });
}

template <class T>
void MassLedger::read(std::span<T> z) const {
  const double inverse = overflowed_ ? std::numeric_limits<double>::quiet_NaN() : 1 / weight();
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = static_cast<T>(value(mass_[i]) * inverse);
}

std::span<const MassLedger::Fixed> MassLedger::pushed(Node to) const {
  const auto edge = pushed_.find(to);
  return edge == pushed_.end() ? std::span<const Fixed>() : edge->second;
}

std::span<const MassLedger::Fixed> MassLedger::pulled(Node from) const {
  const auto edge = pulled_.find(from);
  return edge == pulled_.end() ? std::span<const Fixed>() : edge->second;
}

template <class T>
void MassLedger::read_new(Node from, std::span<const std::byte> total, std::span<T> z) const {
  STARLING_CHECK(total.size() == mass_.size() * sizeof(Fixed) && z.size() == size());
  const std::span<const Fixed> before = pulled(from);
  const auto change = [&](std::size_t i) {
    Fixed now = 0;
    std::memcpy(&now, total.data() + i * sizeof now, sizeof now);
    return value(now - (before.empty() ? 0 : before[i]));
  };
  const double weight = change(size());
  if (!(weight > 0)) return;
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = static_cast<T>(change(i) / weight);
}

#define STARLING_INSTANTIATE(T)                                                                \
  template void MassLedger::read_new<T>(Node, std::span<const std::byte>, std::span<T>) const; \
  template void MassLedger::reset<T>(std::span<const T>);                                      \
  template void MassLedger::add<T>(std::span<const T>, double);                                \
  template void MassLedger::read<T>(std::span<T>) const;
STARLING_INSTANTIATE(float)
STARLING_INSTANTIATE(double)
#undef STARLING_INSTANTIATE

}  // namespace starling::gossip

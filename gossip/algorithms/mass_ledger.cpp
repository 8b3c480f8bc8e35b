// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/mass_ledger.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/check.h"

namespace starling::gossip {
namespace {

constexpr double kLargest = 0x1p20;  // far from where sums of shares could wrap around
constexpr double kLittleWeight = 0x1p-6;
constexpr std::uint32_t kDrainedAfter = 8;
constexpr double kTakenMost = 0.75;
// Far below what an honest member has that is faster than its neighbours, or cannot be heard for a
// while; far above kLeastWeight.
constexpr double kGrowsBelow = 0x1p-11;
constexpr double kGrowth = 0x1p-14;
constexpr double kGivenUp = 0x1p-3;  // of what is above 1, so that others share it first
constexpr double kUsualWeightMin = 0x1p-3;
constexpr double kUsualWeightMax = 1 + 0x1p-6;
constexpr double kForgotten = 0x1p-4;  // of what was made, while the weight is usual

MassLedger::Fixed fixed(double x) {
  return static_cast<MassLedger::Fixed>(std::llrint(x / MassLedger::kUnit));
}

MassLedger::Fixed element(std::span<const std::byte> total, std::size_t i) {
  MassLedger::Fixed x = 0;
  std::memcpy(&x, total.data() + i * sizeof x, sizeof x);
  return x;
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
  Fixed sum = 0;
  for (auto& [from, incoming] : pulled_) sum += std::exchange(incoming.came, 0);
  const double came = value(sum);
  if (came > 0) little_for_ = weight() < kLittleWeight ? little_for_ + 1 : 0;
  double settled = std::min(weight(), most_weight(members_));
  if (balanced_ && settled < kGrowsBelow) {
    const double growth = std::min(kGrowth, came);
    settled += growth;
    grown_ += growth;
  } else if (settled > 1) {
    const double given_up = std::min(grown_, (settled - 1) * kGivenUp);
    settled -= given_up;
    grown_ -= given_up;
  }
  if (settled > kUsualWeightMin &&
      settled < kUsualWeightMax) {  // although not given up: it is gone
    grown_ -= grown_ * kForgotten;
  }
  if (settled != weight()) scale(settled);
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
  Fixed sum = pushed(other).empty() ? 0 : pushed(other).back();
  if (const auto edge = pulled_.find(other); edge != pulled_.end() && !edge->second.total.empty()) {
    sum -= edge->second.total.back() - edge->second.cut;
  }
  const auto before = taken_.find(other);
  return value(sum) + (before == taken_.end() ? 0 : before->second);
}

bool MassLedger::is_drained_by(Node other) const {
  return little_for_ >= kDrainedAfter && taken(other) > kTakenMost;
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
  STARLING_CHECK(total.size() >= sizeof(Fixed));
  return value(element(total, total.size() / sizeof(Fixed) - 1));
}

void MassLedger::open(Node from) { pulled_[from].total.resize(mass_.size()); }

void MassLedger::pull(Node from, std::span<const std::byte> total, Columns elements) {
  STARLING_CHECK(total.size() == mass_.size() * sizeof(Fixed));
  const auto edge = pulled_.find(from);
  STARLING_CHECK(edge != pulled_.end());
  Incoming& incoming = edge->second;
  double part = 1;  // that is taken; the weight is pulled last
  if (balanced_) {
    const double come = value(element(total, size()) - incoming.total.back());
    const double room = std::max(0.0, most_weight(members_) - value(incoming.came));
    if (come > room) part = room / come;
  }
  for (std::size_t i = elements.begin; i < elements.end; ++i) {
    const Fixed now = element(total, i);
    const Fixed come = now - incoming.total[i];
    const Fixed taken = part < 1 ? fixed(part * value(come)) : come;
    mass_[i] += taken;
    incoming.total[i] = now;
    if (i < size()) continue;
    incoming.came += taken;
    incoming.cut += come - taken;
    made_ -= come - taken;
  }
}

MassLedger::Fixed MassLedger::came_since_push(Node from) const {
  const auto edge = pulled_.find(from);
  return edge == pulled_.end() ? 0 : edge->second.came;
}

bool MassLedger::is_plausible(Node from, std::span<const std::byte> total) const {
  if (total.size() != mass_.size() * sizeof(Fixed)) return false;
  const auto edge = pulled_.find(from);
  const Fixed* const before =
      edge == pulled_.end() || edge->second.total.empty() ? nullptr : edge->second.total.data();
  constexpr Fixed kBound = static_cast<Fixed>(kLargest) * kOne;
  constexpr Fixed kHeld = kBound / 2;
  bool within = true;
  bool changes = false;  // but for the weight
  Fixed change = 0;
  for (std::size_t i = 0; i < mass_.size(); ++i) {
    changes |= change != 0;
    change = element(total, i) - (before == nullptr ? 0 : before[i]);
    within &= change + kBound < 2 * kBound && mass_[i] + change + kHeld < 2 * kHeld;
  }
  const Fixed weight = change;  // the last
  if (!within || weight >= kBound || (weight == 0 && changes)) return false;
  return balanced_ || value(came_since_push(from) + weight) <= most_weight(members_);
}

void MassLedger::forget(Node other) {
  // What was on the edge does not come back. With less everybody might wait for the others' pushes.
  if (balanced_ && weight() < kLeastWeight) {
    grown_ += kLeastWeight - weight();
    scale(kLeastWeight);
  }
  taken_[other] = std::max(0.0, taken(other));
  const auto forget_total = [](Totals& total) {
    if (total.empty() || total.back() == 0) return;  // without weight there is nothing else
    for (Fixed& x : total) x = 0;
  };
  if (const auto edge = pushed_.find(other); edge != pushed_.end()) forget_total(edge->second);
  if (const auto edge = pulled_.find(other); edge != pulled_.end()) {
    forget_total(edge->second.total);
    edge->second.cut = 0;
  }
}

void MassLedger::archive(Archive& state) {
  const auto archive_total = [&](Totals& total) {
    state.vector(total);
    state.expect(total.empty() || total.size() == mass_.size());
  };
  state.elements(std::span(mass_));
  state(overflowed_);
  state(made_);
  state(grown_);
  state(little_for_);
  state.map(pushed_, archive_total);
  state.map(pulled_, [&](Incoming& incoming) {
    archive_total(incoming.total);
    state(incoming.came);
    state(incoming.cut);
  });
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
  return edge == pulled_.end() ? std::span<const Fixed>() : edge->second.total;
}

template <class T>
void MassLedger::read_new(Node from, std::span<const std::byte> total, std::span<T> z) const {
  STARLING_CHECK(total.size() == mass_.size() * sizeof(Fixed) && z.size() == size());
  const std::span<const Fixed> before = pulled(from);
  const auto change = [&](std::size_t i) {
    return value(element(total, i) - (before.empty() ? 0 : before[i]));
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

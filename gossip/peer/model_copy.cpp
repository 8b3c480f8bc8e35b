// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/model_copy.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace starling::gossip {

using protocol::Member;
using protocol::ModelColumns;

ModelCopy::ModelCopy(std::vector<Member> donors, std::optional<Member> spare, std::size_t size,
                     Patience patience, const protocol::Support& own)
    : donors_(std::move(donors)), patience_(patience), own_(own), model_(size) {
  STARLING_CHECK(!donors_.empty());
  const std::size_t parts = std::min(donors_.size(), std::max<std::size_t>(size, 1));
  for (std::size_t i = 0; i < parts; ++i) {
    parts_.push_back({.begin = size * i / parts, .end = size * (i + 1) / parts});
  }
  if (spare) donors_.push_back(*spare);
}

std::vector<ModelCopy::Ask> ModelCopy::asks(TimePoint now) {
  for (const Part& part : parts_) {
    if (part.came || !part.asked) continue;
    const Member late = *part.asked;
    if (now >= part.until) {
      lose(late);
    } else if (may_ask_others(part) && now >= part.begins_until) {
      gave_nothing_.push_back(late);
      put_off(late);
    }
  }
  std::vector<Ask> asks;
  for (Part& part : parts_) {
    if (part.came || part.asked || donors_.empty()) continue;
    part.asked = next_donor();
    part.limit.reset();
    expect(part, now);
    asks.push_back({*part.asked, {.epoch = 0, .begin = part.begin, .end = part.end}});
  }
  return asks;
}

bool ModelCopy::is_of(const Part& part, Member from, const ModelColumns& columns) {
  return !part.came && (part.asked == from || part.asked_before.contains(from)) &&
         part.begin == columns.begin && part.end - part.begin == columns.floats;
}

bool ModelCopy::expects(Member from, const ModelColumns& columns) const {
  return std::ranges::any_of(parts_, [&](const Part& part) { return is_of(part, from, columns); });
}

void ModelCopy::progressed(Member from, const ModelColumns& columns, TimePoint now) {
  if (!expects(from, columns)) return;
  for (Part& part : parts_) {
    if (is_of(part, from, columns)) {
      if (part.asked != from) {
        if (part.limit) continue;  // another sends it already
        if (part.asked) part.asked_before.insert(*part.asked);
        part.asked = from;
      }
      if (!part.limit) part.limit = std::max(part.until, now + patience_.sending);
      part.until = std::min(*part.limit, now + patience_.silent);
    } else if (!part.came && part.asked == from && !part.limit) {
      expect(part, now);  // it sends one after the other
    }
  }
}

void ModelCopy::take(Member from, const ModelColumns& columns, const protocol::Support& support,
                     std::span<const float> values) {
  STARLING_CHECK(expects(from, columns) && values.size() == columns.floats);
  if (support.minority && !own_.minority && support.backed < own_.backed) return lose(from);
  std::erase(gave_nothing_, from);
  std::ranges::copy(values, model_.begin() + static_cast<std::ptrdiff_t>(columns.begin));
  for (Part& part : parts_) {
    if (part.begin != columns.begin) continue;
    part.asked = from;
    part.came = true;
    part.progress = {.backed = support.backed, .exchange = columns.exchange};
  }
}

std::map<Member, protocol::Progress> ModelCopy::furthest() const {
  std::map<Member, protocol::Progress> furthest;
  for (const Part& part : parts_) {
    protocol::Progress& known = furthest[*part.asked];
    known = std::max(known, part.progress);
  }
  return furthest;
}

protocol::Progress ModelCopy::progress() const {
  std::vector<protocol::Progress> claims;
  for (const auto& [donor, progress] : furthest()) claims.push_back(progress);
  std::ranges::sort(claims, std::greater<>());
  return claims[std::min<std::size_t>(claims.size(), 2) - 1];
}

void ModelCopy::lose(Member donor) {
  if (std::erase(donors_, donor) > 0) gave_nothing_.push_back(donor);
  put_off_by_.erase(donor);
  ask_others(donor);
  for (Part& part : parts_) part.asked_before.erase(donor);
}

void ModelCopy::put_off(Member donor) {
  if (std::ranges::find(donors_, donor) == donors_.end()) return;
  put_off_by_.insert(donor);
  if (put_off_by_.size() < donors_.size()) ask_others(donor);
}

// Of the donor that was asked.
void ModelCopy::expect(Part& part, TimePoint now) const {
  part.until = now + patience_.silent;
  part.begins_until = patience_.begins < patience_.silent ? now + patience_.begins : part.until;
}

// Nothing has come of it, and not all others have put it off.
bool ModelCopy::may_ask_others(const Part& part) const {
  return !part.limit && put_off_by_.size() + 1 < donors_.size();
}

void ModelCopy::ask_others(Member donor) {
  for (Part& part : parts_) {
    if (part.asked != donor || part.came) continue;
    part.asked_before.insert(donor);
    part.asked.reset();
  }
}

Member ModelCopy::next_donor() {
  const bool all_put_off = put_off_by_.size() == donors_.size();
  while (true) {
    const Member donor = donors_[turn_++ % donors_.size()];
    if (all_put_off || !put_off_by_.contains(donor)) return donor;
  }
}

bool ModelCopy::done() const { return std::ranges::all_of(parts_, &Part::came); }

std::optional<TimePoint> ModelCopy::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Part& part : parts_) {
    if (part.came || !part.asked) continue;
    const TimePoint due =
        may_ask_others(part) ? std::min(part.begins_until, part.until) : part.until;
    next = std::min(next.value_or(due), due);
  }
  return next;
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/reduction.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace starling::collective {
namespace {

void add(std::span<const float> a, std::span<const float> b, float* sum) {
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
}

void divide(float* values, std::size_t size, std::size_t members) {
  const auto divisor = static_cast<float>(members);
  for (std::size_t i = 0; i < size; ++i) values[i] /= divisor;
}

// Of the distance that a mean may have.
constexpr double kSumsAway = 0.5;
constexpr double kMeansAway = 0.75;

}  // namespace

Reduction::Reduction(Shape shape, std::size_t index, std::size_t members, Floats input,
                     double distance_max)
    : shape_(shape),
      index_(index),
      members_(members),
      input_(std::move(input)),
      distance_max_(distance_max) {
  STARLING_CHECK(index < members);
}

void Reduction::start(std::vector<Outgoing>& out) {
  const std::size_t size = input_.values.size();
  if (members_ == 1 || size == 0) {
    mean_ = input_;
    done_ = true;
  } else if (shape_ == Shape::kTree) {
    from_child_.resize(tree_levels(index_, members_));
    climb(out);
  } else {
    buffer_ = std::make_shared_for_overwrite<float[]>(size);
    mean_ = {buffer_, {buffer_.get(), size}};
    const std::uint64_t begin = segment_begin(index_, members_, size);
    const std::uint64_t length = segment_size(index_, members_, size);
    if (length != 0) {
      out.push_back({(index_ + 1) % members_, place_of(Phase::kScatter, 0),
                     input_.part(begin, begin + length)});
    }
    skip_empty(out);
  }
}

Reduction::Taken Reduction::take(std::size_t from, std::uint64_t place, const Floats& piece,
                                 std::vector<Outgoing>& out) {
  if (done_) return Taken::kNotNow;
  return shape_ == Shape::kRing ? take_ring(from, place, piece, out)
                                : take_tree(from, place, piece, out);
}

bool Reduction::is_near(const Floats& piece, std::size_t begin, std::size_t summed) {
  if (std::isinf(distance_max_)) return true;
  const Floats own = input_.part(begin, begin + piece.values.size());
  const bool is_sum = summed > 0;
  const double squares =
      squared_distance(piece.values, own.values, static_cast<double>(is_sum ? summed : 1));
  double& away = is_sum ? sums_away_ : means_away_;
  const double most = (is_sum ? kSumsAway : kMeansAway) * distance_max_;
  if (!(away + squares <= most * most)) return false;  // what is not a number is near nothing
  away += squares;
  return true;
}

std::size_t Reduction::waits_for() const {
  STARLING_CHECK(!done_);
  if (shape_ == Shape::kRing) return (index_ + members_ - 1) % members_;
  return level_ < from_child_.size() ? child(level_) : index_ - (std::size_t{1} << level_);
}

// In a tree the sums of lower levels come first, then the means of higher ones.
std::size_t Reduction::step() const {
  if (shape_ == Shape::kRing) return steps_;
  constexpr std::size_t kLevelsMax = 64;
  return level_ < from_child_.size() ? level_ : 2 * kLevelsMax - from_child_.size();
}

std::uint64_t Reduction::ring_place() const {
  const std::uint64_t half = members_ - 1;
  return steps_ < half ? place_of(Phase::kScatter, steps_)
                       : place_of(Phase::kGather, steps_ - half);
}

// Scatter step s brings segment i - s - 1, gather step s segment i - s.
Reduction::Segment Reduction::ring_segment() const {
  const std::uint64_t k =
      steps_ < members_ - 1 ? index_ + members_ - steps_ - 1 : index_ + 2 * members_ - 1 - steps_;
  const std::size_t floats = input_.values.size();
  return {segment_begin(k, members_, floats), segment_size(k, members_, floats)};
}

Reduction::Taken Reduction::take_ring(std::size_t from, std::uint64_t place, const Floats& piece,
                                      std::vector<Outgoing>& out) {
  const auto [begin, size] = ring_segment();
  const bool is_next = (from + 1) % members_ == index_ && place == ring_place();
  if (!is_next || piece.values.size() != size) return Taken::kNotNow;
  if (!is_near(piece, begin, steps_ < members_ - 1 ? steps_ + 1 : kMean)) return Taken::kWrong;
  ring_step(piece, out);
  skip_empty(out);
  return Taken::kYes;
}

void Reduction::ring_step(const Floats& piece, std::vector<Outgoing>& out) {
  const std::uint64_t half = members_ - 1;
  const auto [begin, size] = ring_segment();
  const Floats own = input_.part(begin, begin + size);
  Floats next = mean_.part(begin, begin + size);
  if (steps_ + 1 < half) {
    auto sum = std::make_shared_for_overwrite<float[]>(size);
    add(piece.values, own.values, sum.get());
    next = {sum, {sum.get(), size}};
  } else if (steps_ + 1 == half) {
    add(piece.values, own.values, buffer_.get() + begin);
    divide(buffer_.get() + begin, size, members_);
  } else {
    std::ranges::copy(piece.values, buffer_.get() + begin);
  }
  ++steps_;
  done_ = steps_ == 2 * half;
  if (done_ || size == 0) return;
  out.push_back({(index_ + 1) % members_, ring_place(), std::move(next)});
}

void Reduction::skip_empty(std::vector<Outgoing>& out) {
  while (!done_ && ring_segment().size == 0) ring_step({}, out);
}

Reduction::Taken Reduction::take_tree(std::size_t from, std::uint64_t place, const Floats& piece,
                                      std::vector<Outgoing>& out) {
  const std::uint64_t levels = from_child_.size();
  if (from >= members_ || piece.values.size() != input_.values.size()) return Taken::kNotNow;
  if (index_ != 0 && place == place_of(Phase::kDown, levels)) {
    const bool from_parent = from == index_ - (std::size_t{1} << levels) && level_ == levels;
    if (!from_parent) return Taken::kNotNow;
    if (!is_near(piece, 0, kMean)) return Taken::kWrong;
    mean_ = piece;
    descend(out);
    return Taken::kYes;
  }
  for (std::uint64_t k = level_; k < levels; ++k) {
    if (from != child(k) || place != place_of(Phase::kUp, k) || from_child_[k]) continue;
    const std::size_t subtree = std::min(std::size_t{1} << k, members_ - child(k));
    sums_away_ = 0;  // a whole vector, of another member than the one before
    if (!is_near(piece, 0, subtree)) return Taken::kWrong;
    from_child_[k] = piece;
    climb(out);
    return Taken::kYes;
  }
  return Taken::kNotNow;
}

// Adds what has come from the children in their order; after the last, passes the sum on.
void Reduction::climb(std::vector<Outgoing>& out) {
  const std::size_t size = input_.values.size();
  for (; level_ < from_child_.size(); ++level_) {
    if (child(level_) >= members_) continue;
    std::optional<Floats>& piece = from_child_[level_];
    if (!piece) return;
    const bool first = buffer_ == nullptr;
    if (first) buffer_ = std::make_shared_for_overwrite<float[]>(size);
    add(first ? input_.values : std::span<const float>(buffer_.get(), size), piece->values,
        buffer_.get());
    piece.reset();
  }
  const Floats sum = buffer_ == nullptr ? input_ : Floats{buffer_, {buffer_.get(), size}};
  if (index_ != 0) {
    out.push_back({index_ - (std::size_t{1} << level_), place_of(Phase::kUp, level_), sum});
    buffer_.reset();
    return;
  }
  divide(buffer_.get(), size, members_);
  mean_ = sum;
  descend(out);
}

// The largest subtree first: it has the longest way.
void Reduction::descend(std::vector<Outgoing>& out) {
  done_ = true;
  for (std::uint64_t k = from_child_.size(); k-- > 0;) {
    if (child(k) < members_) out.push_back({child(k), place_of(Phase::kDown, k), mean_});
  }
}

}  // namespace starling::collective

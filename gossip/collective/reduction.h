// SPDX-License-Identifier: Apache-2.0
// One member's part of one attempt: pieces in, pieces out, at the end the mean. Each element is
// summed by float additions in one fixed order, divided once by float(P) where its sum is whole,
// and passed on as it is: all members hold the same bits, and integers with sums below 2^24 are
// exact up to that division.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gossip/collective/floats.h"
#include "gossip/collective/reduce_shape.h"

namespace starling::collective {

// Ring (reduce-scatter, then all-gather): the sum of segment k begins at member k and goes round
// (((x_k + x_k+1) + x_k+2) ...); member k - 1 has the whole. Tree: x_i + child 0 + child 1 ...
// Empty segments are not sent.
//
// What has been given out is never written again: a partial sum has a buffer of its own, and every
// element of the mean is written once, before it is sent. So no piece has to be copied or waited
// for, however late it is read. Beside the input there is one vector of d, and at times one
// segment.
//
// A mean that is further than `distance_max` from one's own input is wrong. So is a piece that
// would lead to one. The pieces of one sender are sums of c members' vectors, or their mean:
// divided by c, all of them together may be half of that away, and means three quarters. Who sends
// a wrong one has made it so, or should have refused it itself. What a member adds is within the
// first bound, whatever it is, if the next one takes it; the rest is for what honest members differ
// by.
class Reduction {
 public:
  struct Outgoing {
    std::size_t to = 0;  // index among the P members
    std::uint64_t place = 0;
    Floats floats;
  };

  enum class Taken {
    kYes,
    kNotNow,  // it is not a piece that can come now; nothing has changed
    kWrong,   // the same, because of its numbers
  };

  // Requires: index < members; the same shape, members and size of `input` everywhere.
  Reduction(Shape shape, std::size_t index, std::size_t members, Floats input,
            double distance_max = std::numeric_limits<double>::infinity());

  // What is sent unasked. Call once, first.
  void start(std::vector<Outgoing>& out);
  [[nodiscard]] Taken take(std::size_t from, std::uint64_t place, const Floats& piece,
                           std::vector<Outgoing>& out);
  bool done() const { return done_; }
  // Requires: done().
  const Floats& mean() const { return mean_; }
  // The index of who has to send next. Requires: !done(), started.
  std::size_t waits_for() const;
  // Of two members of an attempt in which nothing moves, the one with the lower step waits for the
  // cause; the other waits because of it. Requires: !done(), started.
  std::size_t step() const;

 private:
  Taken take_ring(std::size_t from, std::uint64_t place, const Floats& piece,
                  std::vector<Outgoing>& out);
  // What is to come next.
  std::uint64_t ring_place() const;
  struct Segment {
    std::uint64_t begin;
    std::uint64_t size;
  };
  Segment ring_segment() const;
  void ring_step(const Floats& piece, std::vector<Outgoing>& out);
  void skip_empty(std::vector<Outgoing>& out);
  Taken take_tree(std::size_t from, std::uint64_t place, const Floats& piece,
                  std::vector<Outgoing>& out);
  void climb(std::vector<Outgoing>& out);
  void descend(std::vector<Outgoing>& out);
  std::size_t child(std::uint64_t level) const { return index_ + (std::size_t{1} << level); }

  // Of the piece's columns, from `begin` on: as the sum of so many vectors, or kMean.
  bool is_near(const Floats& piece, std::size_t begin, std::size_t summed);
  static constexpr std::size_t kMean = 0;

  Shape shape_;
  std::size_t index_;
  std::size_t members_;
  Floats input_;
  double distance_max_;
  // Squares of how far those were that were taken.
  double sums_away_ = 0;
  double means_away_ = 0;
  bool done_ = false;
  Floats mean_;
  std::shared_ptr<float[]> buffer_;  // of the mean (ring), of the sum (tree)
  // Ring.
  std::uint64_t steps_ = 0;  // received; P - 1 scatter, P - 1 gather
  // Tree.
  std::uint64_t level_ = 0;                        // children below it are summed
  std::vector<std::optional<Floats>> from_child_;  // that came before their turn
};

}  // namespace starling::collective

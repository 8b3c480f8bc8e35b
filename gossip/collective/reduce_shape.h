// SPDX-License-Identifier: Apache-2.0
// How an all-reduce among P members moves its d floats: round a ring in P segments, or up and down
// a binomial tree; which of the two, who sends what, and how many floats that is.
#pragma once

#include <cstdint>

namespace starling::collective {

enum class Shape { kRing, kTree };

// In the model of a message of b bytes that costs L + b / B, a ring takes 2 (P - 1) messages of
// 4 d / P bytes, one after the other, a tree 2 ceil(log2 P) of 4 d. The tree is the faster one iff
//   4 d (ceil(log2 P) - (P - 1) / P) < L B (P - 1 - ceil(log2 P)),
// so never for P = 2 and 3, and for P = 4, 8, 16 below 0.8, 1.9, 3.6 times L B.
struct ShapeRule {
  enum class Choice { kFaster, kRing, kTree };
  Choice choice = Choice::kFaster;
  double latency_bytes = 65536;  // L B: 0.5 ms at 1 Gbit/s
};
Shape choose_shape(const ShapeRule& rule, std::uint64_t members, std::uint64_t floats);

// Segment k of P is [k d / P, (k + 1) d / P), rounded down; k counts modulo P.
std::uint64_t segment_begin(std::uint64_t k, std::uint64_t members, std::uint64_t floats);
std::uint64_t segment_size(std::uint64_t k, std::uint64_t members, std::uint64_t floats);

// What member `index` of P sends, headers aside: 4 bytes a float. Over all members 2 (P - 1) d.
//   ring: 2 d - |segment i+1| - |segment i+2|, which is 2 (P - 1) / P d where P divides d
//   tree: d up unless i = 0, and d down to each of its children
std::uint64_t floats_sent(Shape shape, std::uint64_t index, std::uint64_t members,
                          std::uint64_t floats);

// `place` of a piece: phase * 2^32 + step.
enum class Phase : std::uint32_t {
  kScatter,  // ring, step s: the sum so far of segment i - s, from i to i + 1
  kGather,   // ring, step s: the mean of segment i + 1 - s, from i to i + 1
  kUp,       // tree, step k: the sum of i's subtree, from i to i - 2^k
  kDown,     // tree, step k: the mean, from i to i + 2^k
  kResult,   // the mean, to a member that asked for it (kWant)
};
constexpr std::uint64_t place_of(Phase phase, std::uint64_t step) {
  return (static_cast<std::uint64_t>(phase) << 32) | step;
}

// Tree: member i has a child i + 2^k for each k below this with i + 2^k < P; its parent is
// i - 2^levels. The root 0 has as many levels as P asks for.
std::uint64_t tree_levels(std::uint64_t index, std::uint64_t members);

}  // namespace starling::collective

// SPDX-License-Identifier: Apache-2.0
// Robust gossip (Gaucher, Dieuleveut, Hendrikx, ICML 2025): x_i + F({w_ij, d_j = x_j - x_i}) in
// place of x_i + sum_j w_ij d_j. Distances ascend, |d_(1)| <= |d_(2)| <= ...; b is the weight that
// lying neighbours may have at i:
//   clip (CS+)    sum_j w_ij d_j min(1, tau / |d_j|), tau = the largest |d_(k)| beyond which
//                 neighbours of weight 2b or more lie; 0 where there is none
//   remove (GTS)  the farthest weight b is left out; of a neighbour on the boundary, a part
// |F - sum over honest of w d|^2 <= rho b sum over honest of w |d|^2, where no neighbour is heavier
// than b. clip: rho = 2 of equal weights and 3 of others, because less than 3 b lies beyond tau;
// remove: rho = 4.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gossip/algorithms/mixer.h"
#include "gossip/algorithms/robust_options.h"

namespace starling::gossip {

// Changes the weights of what is mixed. A difference that is not finite, or too large to be scaled
// in T, counts as infinitely far: it is never mixed. Deterministic; equal distances are taken in
// the order of the inbox.
template <class T>
class RobustMixing {
 public:
  explicit RobustMixing(const RobustOptions& options) : options_(options) {}
  bool is_on() const { return options_.is_on(); }

  // b: the weight of the `bad` heaviest senders, whether or not their messages came.
  double bad_weight(const Links& links);
  // Of equal weights.
  double bad_weight(double of_each) const { return options_.bad * of_each; }

  // Bounds `terms`, whose vectors are [d] as x; what is not mixed at all is taken out of them.
  // O(neighbours * d + neighbours * log(neighbours)), no allocation once buffers have grown.
  // Requires: is_on().
  void bound(MixTerms<T>& terms, std::span<const T> x, double bad_weight);

  // Of the last bound(): an entry for each term, in order.
  std::span<const Bounded> report() const { return report_; }

 private:
  void clip(const MixTerms<T>& terms, double bad_weight);
  void remove(const MixTerms<T>& terms, double bad_weight);
  void find_far(std::span<const T> x);

  RobustOptions options_;
  std::vector<Bounded> report_;
  std::vector<std::size_t> order_;  // of the terms, by distance
  std::vector<double> weights_;     // scratch
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// What every synchronous algorithm does with its inbox: out = base + sum_j W_ij (v_j - x). Written
// in differences, equal models stay equal to the bit, and a message that did not come leaves its
// weight with the node itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/linalg/huge_pages.h"
#include "gossip/algorithms/algorithm.h"

namespace starling::gossip {

template <class T>
using Vector = linalg::NodeVector<T>;

// The sum's terms, in the order in which they are added.
template <class T>
struct MixTerms {
  std::vector<const T*> vectors;  // each [d]
  std::vector<T> weights;

  void clear();
  void add(const T* vector, double weight);
};

// The messages that came, by W_ij: their `first` vectors or their `second`. Valid until the next
// call on the same thread.
template <class T>
MixTerms<T>& terms_of(std::span<const Received<T>> inbox,
                      std::span<const T> Message<T>::*part = &Message<T>::first);

// out = base + sum of weight * (vector - x) on these columns; all [d], out may be base or x.
template <class T>
void mix(const MixTerms<T>& terms, const T* base, const T* x, T* out, Columns columns);

// flow[0 .. end - begin) = sum of weight * (vector - x) on these columns.
template <class T>
void mix_flow(const MixTerms<T>& terms, const T* x, T* flow, Columns columns);
// The same in double, for what adds up flows over many steps: where W_ij = W_ji, what flows from i
// to j is the negative of what flows from j to i to the bit, and so the sum over all nodes stays 0.
template <class T>
void mix_flow_wide(const MixTerms<T>& terms, const T* x, double* flow, Columns columns);
template <>
void mix_flow_wide(const MixTerms<float>& terms, const float* x, double* flow, Columns columns);
template <>
void mix_flow_wide(const MixTerms<double>& terms, const double* x, double* flow, Columns columns);

// Calls f(part) for consecutive parts of `columns` of at most kFlowColumns.
inline constexpr std::size_t kFlowColumns = 1024;
template <class F>
void for_parts(Columns columns, F&& f) {
  for (std::size_t begin = columns.begin; begin < columns.end; begin += kFlowColumns) {
    const std::size_t end = begin + kFlowColumns < columns.end ? begin + kFlowColumns : columns.end;
    f(Columns{begin, end});
  }
}

}  // namespace starling::gossip

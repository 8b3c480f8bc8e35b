// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/mixer.h"

#include "core/linalg/kernels.h"

namespace starling::gossip {
namespace {

// Columns [begin, begin + size) of the terms' vectors; base (or null), x and out start there.
template <class T>
struct Task {
  const MixTerms<T>& terms;
  std::size_t begin;
  std::size_t size;
  const T* base;
  const T* x;
  T* out;
};

// The definition, for scalars that have no kernels: the order of linalg::Mix.
template <class T>
void run(const Task<T>& task) {
  T sum[kFlowColumns];
  for_parts({0, task.size}, [&](Columns part) {
    const std::size_t size = part.end - part.begin;
    const T* const x = task.x + part.begin;
    for (std::size_t i = 0; i < size; ++i) sum[i] = 0;
    for (std::size_t k = 0; k < task.terms.vectors.size(); ++k) {
      const T* const other = task.terms.vectors[k] + task.begin + part.begin;
      const T weight = task.terms.weights[k];
      for (std::size_t i = 0; i < size; ++i) sum[i] += weight * (other[i] - x[i]);
    }
    T* const out = task.out + part.begin;
    for (std::size_t i = 0; i < size; ++i) {
      out[i] = task.base == nullptr ? sum[i] : task.base[part.begin + i] + sum[i];
    }
  });
}

// The terms' vectors from column `begin` on. Valid until the next call on the same thread.
const float* const* shifted(const MixTerms<float>& terms, std::size_t begin) {
  thread_local std::vector<const float*> others;
  others.clear();
  for (const float* vector : terms.vectors) others.push_back(vector + begin);
  return others.data();
}

template <>
void run(const Task<float>& task) {
  linalg::default_kernels().mix({.out = task.out,
                                 .base = task.base,
                                 .x = task.x,
                                 .others = shifted(task.terms, task.begin),
                                 .weights = task.terms.weights.data(),
                                 .count = task.terms.vectors.size(),
                                 .size = task.size});
}

}  // namespace

template <class T>
void MixTerms<T>::clear() {
  vectors.clear();
  weights.clear();
}

template <class T>
void MixTerms<T>::add(const T* vector, double weight) {
  vectors.push_back(vector);
  weights.push_back(static_cast<T>(weight));
}

template <class T>
MixTerms<T>& terms_of(std::span<const Received<T>> inbox, std::span<const T> Message<T>::*part) {
  thread_local MixTerms<T> terms;
  terms.clear();
  for (const Received<T>& received : inbox) {
    if (received.message != nullptr) {
      terms.add((received.message->*part).data(), received.weight);
    }
  }
  return terms;
}

template <class T>
void mix(const MixTerms<T>& terms, const T* base, const T* x, T* out, Columns columns) {
  run<T>({terms, columns.begin, columns.end - columns.begin, base + columns.begin,
          x + columns.begin, out + columns.begin});
}

template <class T>
void mix_flow(const MixTerms<T>& terms, const T* x, T* flow, Columns columns) {
  run<T>({terms, columns.begin, columns.end - columns.begin, nullptr, x + columns.begin, flow});
}

template <>
void mix_flow_wide(const MixTerms<float>& terms, const float* x, double* flow, Columns columns) {
  linalg::default_kernels().mix_wide({.sum = flow,
                                      .x = x + columns.begin,
                                      .others = shifted(terms, columns.begin),
                                      .weights = terms.weights.data(),
                                      .count = terms.vectors.size(),
                                      .size = columns.end - columns.begin});
}

template <>
void mix_flow_wide(const MixTerms<double>& terms, const double* x, double* flow, Columns columns) {
  mix_flow(terms, x, flow, columns);
}

#define STARLING_INSTANTIATE(T)                                              \
  template struct MixTerms<T>;                                               \
  template MixTerms<T>& terms_of<T>(std::span<const Received<T>>,            \
                                    std::span<const T> Message<T>::*);       \
  template void mix<T>(const MixTerms<T>&, const T*, const T*, T*, Columns); \
  template void mix_flow<T>(const MixTerms<T>&, const T*, T*, Columns);
STARLING_INSTANTIATE(float)
STARLING_INSTANTIATE(double)
#undef STARLING_INSTANTIATE

}  // namespace starling::gossip

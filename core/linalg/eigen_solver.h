// SPDX-License-Identifier: Apache-2.0
// Eigenvalues: all of a small dense matrix, or the extreme ones of a large operator that is only
// known by what it does to a vector.
#pragma once

#include <complex>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/linalg/types.h"

namespace starling::linalg {

// Ascending. Only the lower triangle is read. Requires: square.
std::vector<double> symmetric_eigenvalues(const Matrix<double>& matrix);
// In no order. Requires: square.
std::vector<std::complex<double>> eigenvalues(const Matrix<double>& matrix);

// to = A from; both [size].
using Operator = std::function<void(std::span<const double> from, std::span<double> to)>;

struct KrylovOptions {
  // Unit vector whose direction is left out: A is taken as P A P, P = I - u u^T. Empty: nothing is.
  std::span<const double> deflate = {};
  std::size_t steps_max = 1000;  // applications of A
};

struct ExtremeEigenvalues {
  double smallest = 0;
  double largest = 0;
  // Where not: both lie inside the true range, not at its ends.
  bool converged = false;
};

// Of a symmetric operator, outside the direction that is left out, by Lanczos' recursion without
// reorthogonalisation: it costs three vectors, and rounding only repeats eigenvalues that it has
// found (Paige 1980). Converged: both ends no longer move by 1e-10, nor by 1e-6 of their distance
// from 1. Requires: size >= 2.
ExtremeEigenvalues extreme_eigenvalues(std::size_t size, const Operator& apply,
                                       const KrylovOptions& options);

struct LargestModulus {
  double value = 0;
  bool converged = false;
};

// The largest modulus of an eigenvalue of any operator, by Arnoldi's method, restarted.
// Memory: 60 vectors. Requires: size >= 2.
LargestModulus largest_modulus(std::size_t size, const Operator& apply,
                               const KrylovOptions& options);

}  // namespace starling::linalg

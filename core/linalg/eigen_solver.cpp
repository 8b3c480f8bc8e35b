// SPDX-License-Identifier: Apache-2.0
#include "core/linalg/eigen_solver.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "core/base/rng.h"

namespace starling::linalg {
namespace {

constexpr double kBreakdown = 1e-13;  // of a unit vector: nothing but rounding is left

void leave_out(std::span<const double> direction, Vector<double>& x) {
  if (direction.empty()) return;
  const ConstVectorMap<double> u(direction.data(), static_cast<Eigen::Index>(direction.size()));
  x.noalias() -= u.dot(x) * u;
}

// The same for everyone: an eigenvalue must not depend on luck.
Vector<double> start_vector(std::size_t size, std::span<const double> deflate) {
  Rng rng({.seed = 1, .purpose = Purpose::kTopology, .node = hash_name("krylov")});
  Vector<double> x(static_cast<Eigen::Index>(size));
  for (double& value : x) value = rng.uniform(-1, 1);
  leave_out(deflate, x);
  const double norm = x.norm();
  if (norm > 0) x /= norm;
  return x;
}

Vector<double> applied(const Operator& apply, const Vector<double>& x,
                       std::span<const double> deflate) {
  const auto size = static_cast<std::size_t>(x.size());
  Vector<double> y(x.size());
  apply({x.data(), size}, {y.data(), size});
  leave_out(deflate, y);
  return y;
}

// Both ends of the spectrum of the tridiagonal matrix with these diagonals.
ExtremeEigenvalues tridiagonal_ends(const std::vector<double>& diagonal,
                                    const std::vector<double>& beside) {
  const auto size = static_cast<Eigen::Index>(diagonal.size());
  const ConstVectorMap<double> alpha(diagonal.data(), size);
  const ConstVectorMap<double> beta(beside.data(), size - 1);
  Eigen::SelfAdjointEigenSolver<Matrix<double>> solver;
  solver.computeFromTridiagonal(alpha, beta, Eigen::EigenvaluesOnly);
  return {solver.eigenvalues()[0], solver.eigenvalues()[size - 1], false};
}

bool settled(double before, double now) {
  const double moved = std::abs(now - before);
  return moved <= 1e-10 && moved <= 1e-6 * std::max(std::abs(1 - std::abs(now)), 1e-10);
}

// The next vector of an orthonormal basis of the Krylov space, and the column of H that leads
// there; orthogonalised twice, which is enough.
double extend(const Operator& apply, std::span<const double> deflate,
              std::vector<Vector<double>>& basis, Matrix<double>& h) {
  const auto column = static_cast<Eigen::Index>(basis.size()) - 1;
  Vector<double> next = applied(apply, basis.back(), deflate);
  for (int pass = 0; pass < 2; ++pass) {
    for (Eigen::Index row = 0; row <= column; ++row) {
      const Vector<double>& known = basis[static_cast<std::size_t>(row)];
      const double part = known.dot(next);
      h(row, column) += part;
      next.noalias() -= part * known;
    }
  }
  const double norm = next.norm();
  if (norm > kBreakdown) basis.push_back(next / norm);
  return norm;
}

struct RitzPair {
  double modulus = 0;
  Vector<double> vector;  // in the basis; real part
};

RitzPair dominant_pair(const Matrix<double>& h) {
  const Eigen::EigenSolver<Matrix<double>> solver(h);
  Eigen::Index best = 0;
  solver.eigenvalues().cwiseAbs().maxCoeff(&best);
  return {std::abs(solver.eigenvalues()[best]), solver.eigenvectors().col(best).real()};
}

}  // namespace

std::vector<double> symmetric_eigenvalues(const Matrix<double>& matrix) {
  const Eigen::SelfAdjointEigenSolver<Matrix<double>> solver(matrix, Eigen::EigenvaluesOnly);
  return {solver.eigenvalues().begin(), solver.eigenvalues().end()};
}

std::vector<std::complex<double>> eigenvalues(const Matrix<double>& matrix) {
  const Eigen::EigenSolver<Matrix<double>> solver(matrix, false);
  return {solver.eigenvalues().begin(), solver.eigenvalues().end()};
}

ExtremeEigenvalues extreme_eigenvalues(std::size_t size, const Operator& apply,
                                       const KrylovOptions& options) {
  std::vector<double> alpha;
  std::vector<double> beta;
  Vector<double> previous = Vector<double>::Zero(static_cast<Eigen::Index>(size));
  Vector<double> current = start_vector(size, options.deflate);
  ExtremeEigenvalues ends;
  std::size_t next_look = 20;
  for (std::size_t step = 1;; ++step) {
    Vector<double> next = applied(apply, current, options.deflate);
    alpha.push_back(current.dot(next));
    next.noalias() -= alpha.back() * current;
    if (!beta.empty()) next.noalias() -= beta.back() * previous;
    const double norm = next.norm();
    const bool complete = norm <= kBreakdown;  // the space is invariant
    if (complete || step == next_look || step >= options.steps_max) {
      const ExtremeEigenvalues now = tridiagonal_ends(alpha, beta);
      const bool converged = complete || (step > 20 && settled(ends.smallest, now.smallest) &&
                                          settled(ends.largest, now.largest));
      ends = {now.smallest, now.largest, converged};
      if (converged || step >= options.steps_max) return ends;
      next_look = step + std::max<std::size_t>(10, step / 4);
    }
    beta.push_back(norm);
    previous.swap(current);
    current = next / norm;
  }
}

LargestModulus largest_modulus(std::size_t size, const Operator& apply,
                               const KrylovOptions& options) {
  constexpr std::size_t kBasis = 60;
  Vector<double> start = start_vector(size, options.deflate);
  double before = -1;
  for (std::size_t steps = 0;;) {
    std::vector<Vector<double>> basis{start};
    const std::size_t columns = std::min(kBasis, size);
    Matrix<double> h = Matrix<double>::Zero(static_cast<Eigen::Index>(columns),
                                            static_cast<Eigen::Index>(columns));
    Eigen::Index filled = 0;
    bool complete = false;
    while (filled < static_cast<Eigen::Index>(columns) && !complete) {
      const double norm = extend(apply, options.deflate, basis, h);
      complete = norm <= kBreakdown;
      if (++filled < static_cast<Eigen::Index>(columns)) h(filled, filled - 1) = norm;
    }
    steps += static_cast<std::size_t>(filled);
    const RitzPair pair = dominant_pair(h.topLeftCorner(filled, filled));
    const bool converged = complete || std::abs(pair.modulus - before) <= 1e-8;
    if (converged || steps >= options.steps_max) return {pair.modulus, converged};
    before = pair.modulus;
    start.setZero();
    for (Eigen::Index i = 0; i < filled; ++i) {
      start.noalias() += pair.vector[i] * basis[static_cast<std::size_t>(i)];
    }
    leave_out(options.deflate, start);
    start.normalize();
  }
}

}  // namespace starling::linalg

// SPDX-License-Identifier: Apache-2.0
#include "topologies/contraction.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/base/rng.h"
#include "core/linalg/eigen_solver.h"
#include "topologies/family.h"

namespace starling::topologies {
namespace {

using Vector = std::vector<double>;

constexpr Node kDenseNodesMax = 512;
constexpr double kOperations = 3e9;  // that iterations may take: seconds
constexpr double kSampledValues = 4e6;
constexpr double kWeightTolerance = 1e-15;

// How many times an operator of this cost may be applied.
std::size_t steps_max(const Topology& topology) {
  double cost = 0;
  for (std::uint64_t t = 0; t < std::max<std::uint64_t>(1, topology.period()); ++t) {
    cost += static_cast<double>(topology.at(t)->messages()) + 10.0 * topology.nodes();
  }
  return static_cast<std::size_t>(std::clamp(kOperations / cost, 40.0, 4000.0));
}

Vector mean_direction(Node nodes) { return Vector(nodes, 1 / std::sqrt(nodes)); }

Certainty certainty(bool converged) { return converged ? Certainty::kNumeric : Certainty::kBound; }

bool near(double a, double b) { return std::abs(a - b) <= kWeightTolerance; }

// Nodes in a row, the same weight w on every edge: eigenvalues 1 - 2 w (1 - cos(pi k / n)).
std::optional<Contraction> of_path(const MixingMatrix& matrix) {
  const Node n = matrix.nodes();
  if (n < 3 || matrix.senders(0).size() != 1) return std::nullopt;
  const double w = matrix.senders(0)[0].weight;
  for (Node i = 0; i < n; ++i) {
    const auto senders = matrix.senders(i);
    const bool end = i == 0 || i == n - 1;
    if (senders.size() != (end ? 1U : 2U) || senders.back().node != (i == n - 1 ? i - 1 : i + 1) ||
        senders.front().node != (i == 0 ? 1 : i - 1) || !near(senders.front().weight, w) ||
        !near(senders.back().weight, w)) {
      return std::nullopt;
    }
  }
  // 1 - cos(a) = 2 sin^2(a / 2), which keeps small gaps exact.
  const auto eigenvalue = [&](double k) {
    const double s = std::sin(std::numbers::pi * k / (2.0 * n));
    return 1 - 4 * w * s * s;
  };
  const double smallest = eigenvalue(n - 1);
  return Contraction{Figure{std::max(std::abs(eigenvalue(1)), std::abs(smallest))},
                     Figure{smallest}, Figure{eigenvalue(1)}};
}

// A hub and n - 1 leaves of the same weight w: eigenvalues 1 - w (n - 2 times) and 1 - n w.
std::optional<Contraction> of_star(const MixingMatrix& matrix) {
  const Node n = matrix.nodes();
  if (n < 3 || matrix.messages() != 2 * (std::uint64_t{n} - 1)) return std::nullopt;
  Node hub = 0;
  while (hub < n && matrix.senders(hub).size() != n - 1) ++hub;
  if (hub == n) return std::nullopt;
  const auto leaves = matrix.senders(hub);
  const double w = leaves[0].weight;
  if (!std::ranges::all_of(leaves, [&](const Weight& leaf) { return near(leaf.weight, w); })) {
    return std::nullopt;
  }
  const double smallest = std::min(1 - w, 1 - n * w);
  return Contraction{Figure{std::max(std::abs(1 - w), std::abs(1 - n * w))}, Figure{smallest},
                     Figure{std::max(1 - w, 1 - n * w)}};
}

Contraction of_symmetry(const Topology& topology, const Group& group) {
  auto product = spectrum(*topology.at(0), group);
  for (std::uint64_t t = 1; t < topology.period(); ++t) {
    const auto values = spectrum(*topology.at(t), group);
    for (std::size_t k = 0; k < values.size(); ++k) product[k] *= values[k];
  }
  Contraction found;
  double largest = 0;
  double smallest = 1;
  double second = -1;
  for (std::size_t k = 1; k < product.size(); ++k) {
    largest = std::max(largest, std::abs(product[k]));
    smallest = std::min(smallest, product[k].real());
    second = std::max(second, product[k].real());
  }
  found.slem = Figure{std::pow(largest, 1 / static_cast<double>(topology.period()))};
  if (!topology.time_varying() && topology.at(0)->symmetric()) {
    found.lambda_min = Figure{smallest};
    found.lambda_2 = Figure{second};
  }
  return found;
}

linalg::Matrix<double> dense(const MixingMatrix& matrix) {
  const auto n = static_cast<Eigen::Index>(matrix.nodes());
  linalg::Matrix<double> result = linalg::Matrix<double>::Zero(n, n);
  for (Node i = 0; i < matrix.nodes(); ++i) {
    result(i, i) = matrix.self(i);
    for (const Weight& sender : matrix.senders(i)) result(i, sender.node) = sender.weight;
  }
  return result;
}

// Ascending eigenvalues but one, which is 1.
Contraction of_real_spectrum(const std::vector<double>& ascending) {
  const double smallest = ascending.front();
  const double second = ascending[ascending.size() - 2];
  return {Figure{std::max(std::abs(smallest), std::abs(second)), Certainty::kNumeric},
          Figure{smallest, Certainty::kNumeric}, Figure{second, Certainty::kNumeric}};
}

Contraction of_symmetric(const Topology& topology) {
  const auto matrix = topology.at(0);
  if (const auto found = of_path(*matrix)) return *found;
  if (const auto found = of_star(*matrix)) return *found;
  if (matrix->nodes() <= kDenseNodesMax) {
    return of_real_spectrum(linalg::symmetric_eigenvalues(dense(*matrix)));
  }
  const Vector mean = mean_direction(matrix->nodes());
  const auto ends =
      linalg::extreme_eigenvalues(matrix->nodes(), [&](auto x, auto y) { mix(*matrix, x, y); },
                                  {.deflate = mean, .steps_max = steps_max(topology)});
  const double slem = std::max(std::abs(ends.smallest), std::abs(ends.largest));
  return {Figure{slem, certainty(ends.converged)}, Figure{ends.smallest, certainty(ends.converged)},
          Figure{ends.largest, certainty(ends.converged)}};
}

// p with p_i W_ij = p_j W_ji for every message, if there is one: walks along messages from each
// node that was not reached yet, then checks all.
std::optional<Vector> detailed_balance(const MixingMatrix& matrix) {
  if (is_directed(matrix)) return std::nullopt;
  Vector p(matrix.nodes());
  std::vector<Node> queue;
  for (Node root = 0; root < matrix.nodes(); ++root) {
    if (p[root] > 0) continue;
    p[root] = 1;
    queue.assign(1, root);
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const Node i = queue[at];
      for (std::size_t k = 0; k < matrix.senders(i).size(); ++k) {
        const Weight& from = matrix.senders(i)[k];  // W_ij
        if (p[from.node] > 0) continue;
        p[from.node] = p[i] * from.weight / matrix.receivers(i)[k].weight;
        if (!(p[from.node] > 1e-150 && p[from.node] < 1e150)) return std::nullopt;
        queue.push_back(from.node);
      }
    }
  }
  for (Node i = 0; i < matrix.nodes(); ++i) {
    for (std::size_t k = 0; k < matrix.senders(i).size(); ++k) {
      const Weight& from = matrix.senders(i)[k];
      const double one = p[i] * from.weight;
      const double other = p[from.node] * matrix.receivers(i)[k].weight;
      if (std::abs(one - other) > 1e-12 * std::max(one, other)) return std::nullopt;
    }
  }
  return p;
}

// D^(1/2) W D^(-1/2), D = diag(p), is symmetric and has the eigenvalues of W; that of 1 belongs to
// the square roots of p where rows sum to 1, else of 1/p.
std::optional<Contraction> of_balanced(const Topology& topology) {
  const auto matrix = topology.at(0);
  const auto balance = detailed_balance(*matrix);
  if (!balance) return std::nullopt;
  Vector root = *balance;
  for (double& value : root) value = std::sqrt(value);
  Vector direction = root;
  if (!matrix->row_stochastic()) {
    for (double& value : direction) value = 1 / value;
  }
  const double norm =
      std::sqrt(std::inner_product(direction.begin(), direction.end(), direction.begin(), 0.0));
  for (double& value : direction) value /= norm;
  Vector scaled(root.size());
  const auto apply = [&](std::span<const double> x, std::span<double> y) {
    for (std::size_t i = 0; i < x.size(); ++i) scaled[i] = x[i] / root[i];
    mix(*matrix, scaled, y);
    for (std::size_t i = 0; i < x.size(); ++i) y[i] *= root[i];
  };
  const auto ends = linalg::extreme_eigenvalues(
      matrix->nodes(), apply, {.deflate = direction, .steps_max = steps_max(topology)});
  const double slem = std::max(std::abs(ends.smallest), std::abs(ends.largest));
  return Contraction{Figure{slem, certainty(ends.converged)}, {}, {}};
}

Contraction of_any_static(const Topology& topology) {
  if (const auto found = of_balanced(topology)) return *found;
  const auto matrix = topology.at(0);
  if (matrix->nodes() <= kDenseNodesMax) {
    auto values = linalg::eigenvalues(dense(*matrix));
    std::ranges::sort(values, {}, [](const auto& value) { return std::abs(value - 1.0); });
    double largest = 0;
    for (std::size_t k = 1; k < values.size(); ++k) {
      largest = std::max(largest, std::abs(values[k]));
    }
    return {Figure{std::min(largest, 1.0), Certainty::kNumeric}, {}, {}};
  }
  // Vectors of equal values are invariant where rows sum to 1, those of sum 0 where columns do;
  // either way the rest of the spectrum is that of P W P.
  const Vector mean = mean_direction(matrix->nodes());
  const auto found =
      linalg::largest_modulus(matrix->nodes(), [&](auto x, auto y) { mix(*matrix, x, y); },
                              {.deflate = mean, .steps_max = steps_max(topology)});
  return {Figure{found.value, certainty(found.converged)}, {}, {}};
}

// The largest singular value of the product of a period, outside the mean.
Contraction of_period(const Topology& topology) {
  const Vector mean = mean_direction(topology.nodes());
  Vector now(topology.nodes());
  Vector next(topology.nodes());
  const auto apply = [&](std::span<const double> x, std::span<double> y) {
    std::ranges::copy(x, now.begin());
    for (std::uint64_t t = 0; t < topology.period(); ++t) {
      mix(*topology.at(t), now, next);
      now.swap(next);
    }
    // Where only rows sum to 1 the common value may move; the distance from it is what counts.
    const double middle = std::accumulate(now.begin(), now.end(), 0.0) / topology.nodes();
    for (double& value : now) value -= middle;
    for (std::uint64_t t = topology.period(); t-- > 0;) {
      mix_transposed(*topology.at(t), now, next);
      now.swap(next);
    }
    std::ranges::copy(now, y.begin());
  };
  const auto ends = linalg::extreme_eigenvalues(
      topology.nodes(), apply,
      {.deflate = mean, .steps_max = std::max<std::size_t>(40, steps_max(topology) / 2)});
  const double factor = std::sqrt(std::max(0.0, ends.largest));
  return {Figure{std::pow(factor, 1 / static_cast<double>(topology.period())),
                 certainty(ends.converged)},
          std::nullopt};
}

double square(const Vector& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

void centre(Vector& x) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  for (double& value : x) value -= mean;
}

Vector random_vector(Node nodes, std::uint64_t attempt) {
  Rng rng({.seed = 1,
           .purpose = Purpose::kTopology,
           .node = hash_name("contraction"),
           .attempt = static_cast<std::uint32_t>(attempt)});
  Vector x(nodes);
  for (double& value : x) value = rng.uniform(-1, 1);
  return x;
}

Contraction of_draws(const Topology& topology) {
  if (const auto factor = topology.expected_squared_factor()) {
    return {Figure{std::sqrt(*factor)}, {}, {}};
  }
  const auto draws =
      static_cast<std::uint64_t>(std::clamp(kSampledValues / topology.nodes(), 20.0, 20'000.0));
  double sum = 0;
  Vector mixed(topology.nodes());
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    Vector x = random_vector(topology.nodes(), draw);
    centre(x);
    mix(*topology.at(draw), x, mixed);
    sum += square(mixed) / square(x);
  }
  return {Figure{std::sqrt(sum / static_cast<double>(draws)), Certainty::kSampled}, {}, {}};
}

}  // namespace

void mix(const MixingMatrix& matrix, std::span<const double> x, std::span<double> mixed) {
  for (Node i = 0; i < matrix.nodes(); ++i) {
    double sum = matrix.self(i) * x[i];
    for (const Weight& sender : matrix.senders(i)) sum += sender.weight * x[sender.node];
    mixed[i] = sum;
  }
}

void mix_transposed(const MixingMatrix& matrix, std::span<const double> x,
                    std::span<double> mixed) {
  for (Node i = 0; i < matrix.nodes(); ++i) {
    double sum = matrix.self(i) * x[i];
    for (const Weight& receiver : matrix.receivers(i)) sum += receiver.weight * x[receiver.node];
    mixed[i] = sum;
  }
}

Contraction contraction(const Topology& topology, const std::optional<Group>& group,
                        bool connected) {
  if (topology.period() == 0) return of_draws(topology);
  // An edge list of one line may name ten million nodes.
  if (!connected && topology.nodes() > kDenseNodesMax) return {Figure{1}, {}, {}};
  Contraction found;
  if (group) {
    found = of_symmetry(topology, *group);
  } else if (topology.time_varying()) {
    found = of_period(topology);
  } else {
    found = topology.at(0)->symmetric() ? of_symmetric(topology) : of_any_static(topology);
  }
  // Parts that never talk keep what they differ by.
  if (!connected) found.slem = Figure{1};
  return found;
}

std::optional<std::uint64_t> finite_time(const Topology& topology) {
  constexpr double kLeft = 1e-12;  // of the distance at the start
  constexpr double kDrop = 1e-9;   // within one step: what mixes geometrically falls slower
  if (topology.period() == 0) return std::nullopt;
  const std::uint64_t steps =
      topology.time_varying() ? topology.period() : 2 * ceil_log(topology.nodes(), 2) + 2;
  Vector x = random_vector(topology.nodes(), 0);
  centre(x);
  Vector mixed(topology.nodes());
  const auto distance = [](const Vector& values) {
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    return largest;
  };
  double before = distance(x);
  for (std::uint64_t t = 0; t < steps; ++t) {
    mix(*topology.at(t), x, mixed);
    const double after = distance(mixed);
    if (after <= kLeft && after <= kDrop * before) return t + 1;
    before = after;
    x.swap(mixed);
  }
  return std::nullopt;
}

}  // namespace starling::topologies

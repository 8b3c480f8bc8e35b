// SPDX-License-Identifier: Apache-2.0
// What the tests of gossip algorithms share: meshes as dense matrices, heterogeneous quadratics
// whose optimum is known, and a fleet that runs one object a node with messages that may get lost.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "gossip/algorithms/algorithm_state.h"
#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;  // rows

inline Matrix zeros(std::size_t rows, std::size_t columns) { return Matrix(rows, Row(columns)); }

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = zeros(a.size(), b[0].size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

// a + factor * b
inline Matrix sum(Matrix a, const Matrix& b, double factor = 1) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) a[i][j] += factor * b[i][j];
  }
  return a;
}

inline double largest(const Matrix& a) {
  double value = 0;
  for (const Row& row : a) {
    for (const double x : row) value = std::isfinite(x) ? std::max(value, std::abs(x)) : INFINITY;
  }
  return value;
}
inline double distance(const Matrix& a, const Matrix& b) { return largest(sum(a, b, -1)); }
// How far models are from that of node 0, but for this node's (not 0).
inline double apart_without(Matrix models, std::size_t node) {
  models.erase(models.begin() + static_cast<std::ptrdiff_t>(node));
  return distance(models, Matrix(models.size(), models[0]));
}

// The x with a x = b: Gaussian elimination with pivots.
inline Row solve(Matrix a, Row b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k; i < n; ++i) {
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    }
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

// One mixing step: W[receiver][sender].
class Mesh {
 public:
  explicit Mesh(Matrix w) : w_(std::move(w)), senders_(w_.size()), receivers_(w_.size()) {
    for (Node i = 0; i < w_.size(); ++i) {
      for (Node j = 0; j < w_.size(); ++j) {
        if (i == j || w_[i][j] == 0) continue;
        senders_[i].push_back({j, w_[i][j]});
        receivers_[j].push_back({i, w_[i][j]});
      }
    }
  }
  Node nodes() const { return static_cast<Node>(w_.size()); }
  const Matrix& w() const { return w_; }
  Links links(Node i) const { return {i, w_[i][i], senders_[i], receivers_[i]}; }
  // Of the messages that i receives or sends, which is the one of j.
  std::size_t receiver_index(Node i, Node j) const {
    std::size_t k = 0;
    while (receivers_[i][k].node != j) ++k;
    return k;
  }

 private:
  Matrix w_;
  std::vector<std::vector<topologies::Weight>> senders_;
  std::vector<std::vector<topologies::Weight>> receivers_;
};

// W = (1 - sum) on the diagonal, `weight` at each offset.
inline Mesh circulant(Node n, const std::vector<Node>& offsets, double weight) {
  Matrix w = zeros(n, n);
  for (Node i = 0; i < n; ++i) {
    w[i][i] = 1 - static_cast<double>(offsets.size()) * weight;
    for (const Node offset : offsets) w[(i + offset) % n][i] += weight;
  }
  return Mesh(w);
}
inline Mesh ring(Node n, double weight = 1.0 / 3) { return circulant(n, {1, n - 1}, weight); }
// Directed, i to i + 2^k for all 2^k < n.
inline Mesh exponential(Node n) {
  std::vector<Node> offsets;
  for (Node offset = 1; offset < n; offset *= 2) offsets.push_back(offset);
  return circulant(n, offsets, 1.0 / static_cast<double>(offsets.size() + 1));
}
// Directed and uneven: node i sends equal shares to itself and to the i % 3 + 1 nodes after it.
// Columns sum to 1, rows do not.
inline Mesh uneven(Node n) {
  Matrix w = zeros(n, n);
  for (Node i = 0; i < n; ++i) {
    const Node sends = i % 3 + 1;
    for (Node k = 0; k <= sends; ++k) w[(i + k) % n][i] = 1.0 / (sends + 1);
  }
  return Mesh(w);
}
inline Mesh complete(Node n) { return Mesh(Matrix(n, Row(n, 1.0 / n))); }
// Metropolis weights on the tree 0 - 1 - 2 - ... with two more leaves at node 1.
inline Mesh tree(Node n) {
  Matrix w = zeros(n, n);
  std::vector<std::pair<Node, Node>> edges = {{1, n - 1}, {1, n - 2}};
  for (Node i = 0; i + 3 < n; ++i) edges.push_back({i, i + 1});
  std::vector<int> degree(n);
  for (const auto& [i, j] : edges) ++degree[i], ++degree[j];
  for (const auto& [i, j] : edges) w[i][j] = w[j][i] = 1.0 / (1 + std::max(degree[i], degree[j]));
  for (Node i = 0; i < n; ++i) {
    w[i][i] = 1;
    for (Node j = 0; j < n; ++j) w[i][i] -= i == j ? 0 : w[i][j];
  }
  return Mesh(w);
}

// f_i(x) = 1/2 (x - b_i)^T A_i (x - b_i), A_i symmetric with eigenvalues in about [0.5, 2].
struct Quadratics {
  std::vector<Matrix> a;
  std::vector<Row> b;

  Quadratics(Node nodes, std::size_t size, std::uint64_t seed = 1) {
    Rng rng({.seed = seed});
    for (Node i = 0; i < nodes; ++i) {
      Matrix m = zeros(size, size);
      for (std::size_t r = 0; r < size; ++r) {
        for (std::size_t c = 0; c < r; ++c) {
          m[r][c] = m[c][r] = rng.uniform(-0.4, 0.4) / static_cast<double>(size);
        }
        m[r][r] = rng.uniform(0.8, 1.6);
      }
      a.push_back(m);
      b.emplace_back(size);
      for (double& x : b.back()) x = rng.uniform(-2, 2);
    }
  }
  std::size_t nodes() const { return a.size(); }
  std::size_t size() const { return b[0].size(); }

  Row gradient(std::size_t node, const Row& x) const {
    Row g(size());
    for (std::size_t r = 0; r < size(); ++r) {
      for (std::size_t c = 0; c < size(); ++c) g[r] += a[node][r][c] * (x[c] - b[node][c]);
    }
    return g;
  }
  Matrix gradients(const Matrix& x) const {
    Matrix g;
    for (std::size_t i = 0; i < nodes(); ++i) g.push_back(gradient(i, x[i]));
    return g;
  }
  Row optimum() const {
    Matrix total = zeros(size(), size());
    Row right(size());
    for (std::size_t i = 0; i < nodes(); ++i) {
      total = sum(total, a[i]);
      const Row pull = gradient(i, Row(size()));  // -A_i b_i
      for (std::size_t r = 0; r < size(); ++r) right[r] -= pull[r];
    }
    return solve(total, right);
  }
  // Every node at the optimum.
  Matrix optima() const { return Matrix(nodes(), optimum()); }
};

// Gradients in double, the model in T; `noise` adds a normal to every element.
template <class T>
class QuadraticTraining final : public LocalTraining<T> {
 public:
  QuadraticTraining(const Quadratics& problem, std::size_t node, double noise)
      : problem_(problem), node_(node), noise_(noise), rng_({.seed = 7, .node = node}) {}
  Result<double> step(std::span<T> x, double rate) override {
    const Row g = draw(x);
    for (std::size_t i = 0; i < g.size(); ++i) {
      x[i] = static_cast<T>(static_cast<double>(x[i]) - rate * g[i]);
    }
    return 1;
  }
  Result<double> steps(std::span<T> x, double rate, int count) override {
    for (int k = 0; k < count; ++k) STARLING_TRY(step(x, rate));
    return static_cast<double>(count);
  }
  Result<double> gradient(std::span<const T> x, std::span<T> out) override {
    const Row g = draw(x);
    for (std::size_t i = 0; i < g.size(); ++i) out[i] = static_cast<T>(g[i]);
    return 1;
  }

 private:
  Row draw(std::span<const T> x) {
    Row g = problem_.gradient(node_, Row(x.begin(), x.end()));
    if (noise_ != 0) {
      for (double& v : g) v += noise_ * rng_.normal();
    }
    return g;
  }

  const Quadratics& problem_;
  std::size_t node_;
  double noise_;
  Rng rng_;
};

// What plan_algorithm() makes of it, but without a topology and without refusing anything.
inline Plan plan_by_hand(const AlgorithmOptions& options, Node nodes, bool lossy = false) {
  Plan plan = {.options = options, .traits = traits(options), .nodes = nodes, .lossy = lossy};
  if (options.name == "sgp") plan.traits.per_receiver = lossy;
  return plan;
}

struct FleetOptions {
  double loss = 0;        // probability that a message does not come
  double noise = 0;       // of the gradients
  std::size_t parts = 1;  // absorb() in so many pieces
};

// One object a node, from the same or from its own initial model.
template <class T>
class Fleet {
 public:
  Fleet(const Plan& plan, const Quadratics& problem, const Matrix& start, FleetOptions options = {})
      : plan_(plan), options_(options), size_(problem.size()) {
    for (Node i = 0; i < plan.nodes; ++i) {
      const std::vector<T> model(start[i].begin(), start[i].end());
      nodes_.push_back(make_algorithm<T>(plan, i, model));
      training_.push_back(std::make_unique<QuadraticTraining<T>>(problem, i, options.noise));
    }
  }
  Algorithm<T>& node(Node i) { return *nodes_[i]; }
  // Another process takes the node's place: with its model, and `state` where it is given.
  [[nodiscard]] Result<void> replace(Node i, std::optional<Bytes> state) {
    const std::span<const T> model = nodes_[i]->model();
    const std::vector<T> kept(model.begin(), model.end());
    nodes_[i] = make_algorithm<T>(plan_, i, kept);
    return state ? restore_state(*nodes_[i], *state) : Result<void>();
  }
  // From now on nothing comes to this node.
  void cut(std::optional<Node> node) { cut_ = node; }
  // From now on nothing comes from this node.
  void mute(std::optional<Node> node) { muted_ = node; }

  // One exchange on `mesh` after H local steps.
  void step(const Mesh& mesh, double rate, int steps = 1) {
    const LocalPhase phase = {.step = exchange_ * static_cast<std::uint64_t>(steps),
                              .steps = steps,
                              .rate = rate,
                              .exchange = exchange_};
    for (Node i = 0; i < plan_.nodes; ++i) {
      losses_ += *nodes_[i]->adapt(*training_[i], phase, mesh.links(i));
    }
    mix(mesh);
  }
  // As step(), but between the local steps and their mixing the members are others, on `after`.
  void step_across(const Mesh& before, const Mesh& after, double rate, int steps = 1) {
    const LocalPhase phase = {.step = exchange_ * static_cast<std::uint64_t>(steps),
                              .steps = steps,
                              .rate = rate,
                              .exchange = exchange_};
    for (Node i = 0; i < plan_.nodes; ++i) {
      losses_ += *nodes_[i]->adapt(*training_[i], phase, before.links(i));
      (void)save_state(*nodes_[i]);  // a checkpoint is kept with the end of an epoch
      nodes_[i]->regroup(plan_, after.links(i), &phase);
    }
    mix(after);
  }
  // What was sent is mixed.
  void mix(const Mesh& mesh) {
    const auto inboxes = plan_.traits.pattern == Pattern::kMean ? mean_inboxes() : deliver(mesh);
    for (Node i = 0; i < plan_.nodes; ++i) absorb(mesh, i, inboxes[i]);
    for (Node i = 0; i < plan_.nodes; ++i) nodes_[i]->conclude(mesh.links(i), inboxes[i]);
    ++exchange_;
  }
  void run(const Mesh& mesh, int exchanges, double rate, int steps = 1) {
    for (int t = 0; t < exchanges; ++t) step(mesh, rate, steps);
  }

  Matrix models() const {
    Matrix x;
    for (const auto& node : nodes_) x.emplace_back(node->model().begin(), node->model().end());
    return x;
  }
  Row mean() const {
    Row m(size_);
    for (const Row& x : models()) {
      for (std::size_t k = 0; k < size_; ++k) m[k] += x[k] / plan_.nodes;
    }
    return m;
  }
  std::uint64_t bytes() const { return bytes_; }
  double losses() const { return losses_; }

 private:
  using Inboxes = std::vector<std::vector<Received<T>>>;

  Inboxes deliver(const Mesh& mesh) {
    Inboxes inboxes(plan_.nodes);
    for (Node i = 0; i < plan_.nodes; ++i) {
      for (const topologies::Weight& sender : mesh.links(i).senders) {
        const Message<T>& message =
            nodes_[sender.node]->message(mesh.receiver_index(sender.node, i));
        bytes_ += message.bytes();
        const bool lost = rng_.uniform() < options_.loss || cut_ == i || muted_ == sender.node;
        inboxes[i].push_back({sender.node, sender.weight, lost ? nullptr : &message});
      }
    }
    return inboxes;
  }
  Inboxes mean_inboxes() {
    mean_.assign(size_, 0);
    for (std::size_t k = 0; k < size_; ++k) {
      double total = 0;
      for (const auto& node : nodes_) total += static_cast<double>(node->message(0).first[k]);
      mean_[k] = static_cast<T>(total / plan_.nodes);
    }
    mean_message_.first = mean_;
    return Inboxes(plan_.nodes, {Received<T>{0, 1, &mean_message_}});
  }
  void absorb(const Mesh& mesh, Node i, const std::vector<Received<T>>& inbox) {
    const std::size_t parts = plan_.traits.whole_columns ? 1 : options_.parts;
    for (std::size_t p = 0; p < parts; ++p) {
      nodes_[i]->absorb(mesh.links(i), inbox, {size_ * p / parts, size_ * (p + 1) / parts});
    }
  }

  Plan plan_;
  FleetOptions options_;
  std::size_t size_;
  std::vector<std::unique_ptr<Algorithm<T>>> nodes_;
  std::vector<std::unique_ptr<QuadraticTraining<T>>> training_;
  Rng rng_{{.seed = 11, .purpose = Purpose::kNetwork}};
  std::optional<Node> cut_;
  std::optional<Node> muted_;
  std::uint64_t exchange_ = 0;
  std::uint64_t bytes_ = 0;
  double losses_ = 0;
  std::vector<T> mean_;
  Message<T> mean_message_;
};

// Different models at the nodes.
inline Matrix scattered(Node nodes, std::size_t size, std::uint64_t seed = 3) {
  Rng rng({.seed = seed});
  Matrix x = zeros(nodes, size);
  for (Row& row : x) {
    for (double& v : row) v = rng.uniform(-1, 1);
  }
  return x;
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "topologies/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"

namespace starling::topologies {
namespace {

struct Degrees {
  std::vector<Node> in;
  std::vector<Node> out;

  explicit Degrees(const Step& step) : in(step.diagonal.size()), out(step.diagonal.size()) {
    for (const MixingEntry& entry : step.entries) {
      ++in[entry.receiver];
      ++out[entry.sender];
    }
  }
  bool regular() const {
    return std::ranges::all_of(in, [&](Node d) { return d == in[0]; }) && in == out;
  }
};

// What remains of each row for the node itself.
void complete_rows(Step& step) {
  std::ranges::fill(step.diagonal, 1.0);
  for (const MixingEntry& entry : step.entries) step.diagonal[entry.receiver] -= entry.weight;
  for (double& self : step.diagonal) self = std::max(self, 0.0);
}

bool answers_all(const Step& step) {
  std::vector<std::pair<Node, Node>> forward;
  std::vector<std::pair<Node, Node>> backward;
  for (const MixingEntry& entry : step.entries) {
    forward.emplace_back(entry.receiver, entry.sender);
    backward.emplace_back(entry.sender, entry.receiver);
  }
  std::ranges::sort(forward);
  std::ranges::sort(backward);
  return forward == backward;
}

Result<void> lay_metropolis(Step& step, const Degrees& degrees) {
  if (!degrees.regular() && !answers_all(step)) {
    return wrong_setting(
        "topology-spec",
        "the mixing rule metropolis needs an undirected or regular graph; take push, "
        "uniform or own");
  }
  for (MixingEntry& entry : step.entries) {
    entry.weight = 1.0 / (1.0 + std::max(degrees.in[entry.receiver], degrees.in[entry.sender]));
  }
  complete_rows(step);
  return {};
}

void lay_uniform(Step& step, const Degrees& degrees) {
  for (MixingEntry& entry : step.entries) entry.weight = 1.0 / (1.0 + degrees.in[entry.receiver]);
  for (Node i = 0; i < step.diagonal.size(); ++i) step.diagonal[i] = 1.0 / (1.0 + degrees.in[i]);
}

void lay_push(Step& step, const Degrees& degrees) {
  for (MixingEntry& entry : step.entries) entry.weight = 1.0 / (1.0 + degrees.out[entry.sender]);
  for (Node i = 0; i < step.diagonal.size(); ++i) step.diagonal[i] = 1.0 / (1.0 + degrees.out[i]);
}

void lay_max_degree(Step& step, const Degrees& degrees) {
  const double weight = 1.0 / (1.0 + std::ranges::max(degrees.in));
  for (MixingEntry& entry : step.entries) entry.weight = weight;
  complete_rows(step);
}

void make_lazy(Step& step) {
  for (MixingEntry& entry : step.entries) entry.weight /= 2;
  for (double& self : step.diagonal) self = (1 + self) / 2;
}

}  // namespace

void Step::exchange(Node a, Node b, double weight) {
  entries.push_back({a, b, weight});
  entries.push_back({b, a, weight});
  diagonal[a] -= weight;
  diagonal[b] -= weight;
}

void Step::average(std::span<const Node> members) {
  const double share = 1.0 / static_cast<double>(members.size());
  for (const Node i : members) {
    diagonal[i] = share;
    for (const Node j : members) {
      if (i != j) entries.push_back({i, j, share});
    }
  }
}

Step circulant(Node nodes, double self, std::span<const Shift> shifts) {
  Step step{std::vector<double>(nodes, self), {}};
  step.entries.reserve(std::size_t{nodes} * shifts.size());
  for (Node i = 0; i < nodes; ++i) {
    for (const Shift& shift : shifts) {
      const auto receiver = static_cast<Node>((std::uint64_t{i} + shift.offset) % nodes);
      step.entries.push_back({receiver, i, shift.weight});
    }
  }
  return step;
}

Step metropolis(Node nodes, std::span<const Edge> edges) {
  Step step = Step::idle(nodes);
  std::vector<Node> degree(nodes);
  for (const Edge& edge : edges) {
    ++degree[edge.from];
    ++degree[edge.to];
  }
  step.entries.reserve(2 * edges.size());
  for (const Edge& edge : edges) {
    step.exchange(edge.from, edge.to, 1.0 / (1.0 + std::max(degree[edge.from], degree[edge.to])));
  }
  for (double& self : step.diagonal) self = std::max(self, 0.0);
  return step;
}

Result<MixingMatrix> lay(Step own, std::string_view rule) {
  if (rule == "lazy") {
    make_lazy(own);
  } else if (rule != "own") {
    const Degrees degrees(own);
    if (rule == "metropolis") {
      STARLING_TRY(lay_metropolis(own, degrees));
    } else if (rule == "uniform") {
      lay_uniform(own, degrees);
    } else if (rule == "push") {
      lay_push(own, degrees);
    } else {
      STARLING_CHECK(rule == "max-degree");
      lay_max_degree(own, degrees);
    }
  }
  return MixingMatrix::make(std::move(own.diagonal), std::move(own.entries));
}

bool is_directed(const MixingMatrix& matrix) {
  if (matrix.symmetric()) return false;
  for (Node i = 0; i < matrix.nodes(); ++i) {
    if (!std::ranges::equal(matrix.senders(i), matrix.receivers(i), {}, &Weight::node,
                            &Weight::node)) {
      return true;
    }
  }
  return false;
}

}  // namespace starling::topologies

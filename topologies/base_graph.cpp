// SPDX-License-Identifier: Apache-2.0
#include "topologies/base_graph.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::topologies {
namespace {

// The largest divisor of n without a prime factor above `largest`.
Node smooth_divisor(Node n, Node largest) {
  Node rough = n;
  for (std::uint64_t factor = 2; factor <= largest && factor <= rough; ++factor) {
    while (rough % factor == 0) rough /= static_cast<Node>(factor);
  }
  return n / rough;
}

}  // namespace

std::optional<std::vector<Node>> factorize(Node n, Node largest) {
  std::vector<Node> factors;
  for (Node factor = std::min(largest, n); factor >= 2; --factor) {
    for (; n % factor == 0; n /= factor) factors.push_back(factor);
  }
  if (n != 1) return std::nullopt;
  std::ranges::reverse(factors);
  return factors;
}

void hyper_hypercube_step(std::span<const Node> factors, std::uint64_t t, Part part, Step& step) {
  const std::size_t digit = t % factors.size();
  Node stride = 1;
  for (std::size_t i = 0; i < digit; ++i) stride *= factors[i];
  std::vector<Node> clique(factors[digit]);
  for (Node i = 0; i < part.size; ++i) {
    if (i / stride % factors[digit] != 0) continue;
    for (Node j = 0; j < clique.size(); ++j) clique[j] = part[i + j * stride];
    step.average(clique);
  }
}

SimpleBaseGraph::SimpleBaseGraph(Node nodes, Node k) : nodes_(nodes), k_(std::min(k, nodes)) {
  const Node base = k_ + 1;
  if (auto factors = factorize(nodes, base)) {
    factors_ = std::move(*factors);
    return;
  }
  std::uint64_t unit = 1;
  Node power = 0;
  for (; unit * base <= nodes; unit *= base) ++power;
  Node begin = 0;
  for (; unit > 0; unit /= base, --power) {
    const auto groups = static_cast<Node>((nodes - begin) / unit);
    if (groups == 0) continue;
    const auto size = static_cast<Node>(groups * unit);
    auto inside = factorize(size, base);
    STARLING_CHECK(inside.has_value());
    digits_.push_back({begin, size, groups, power, std::move(*inside)});
    begin += size;
  }
}

std::uint64_t SimpleBaseGraph::length() const {
  if (digits_.empty()) return factors_.size();
  // Averaging inside the largest part, its taking in, and averaging inside its groups.
  return digits_[0].inside.size() + 1 + digits_[0].power;
}

void SimpleBaseGraph::lay(std::uint64_t t, Part part, Step& step) const {
  if (digits_.empty()) return hyper_hypercube_step(factors_, t, part, step);
  const std::uint64_t first = digits_[0].inside.size();
  for (std::size_t l = 0; l < digits_.size(); ++l) {
    const Digit& digit = digits_[l];
    const Part own{part[digit.begin], digit.size, part.stride};
    if (t < first) {
      if (!digit.inside.empty()) hyper_hypercube_step(digit.inside, t, own, step);
    } else if (t == first + l && l + 1 < digits_.size()) {
      take_in(l, part, step);
    } else if (t >= first + l) {
      // The last part takes nobody in, so it begins a step early.
      average_groups(l, t - first - l - (l + 1 < digits_.size() ? 1 : 0), own, step);
    }
  }
}

// Every smaller node gives and takes the weight S_l = size_l / (size_l + smaller) in all, the same
// from each group; so a group's sum becomes its share of the sum over this part and the smaller
// ones. Nodes of the part that nobody chose average in cliques: it changes nothing for values that
// are equal by then, and uses the idle links when nodes train between steps.
void SimpleBaseGraph::take_in(std::size_t l, Part part, Step& step) const {
  const Digit& digit = digits_[l];
  const Node others = smaller(l);
  const Node group_size = digit.size / digit.groups;
  STARLING_CHECK(others < group_size);
  const double weight =
      static_cast<double>(digit.size) / (static_cast<double>(digit.size) + others) / digit.groups;
  for (Node i = 0; i < others; ++i) {
    const Node outside = part[digit.begin + digit.size + i];
    for (Node group = 0; group < digit.groups; ++group) {
      const Node partner = digit.begin + (group + 1) * group_size - 1 - i;
      step.exchange(outside, part[partner], weight);
    }
  }
  std::vector<Node> idle;
  for (Node group = 0; group < digit.groups; ++group) {
    for (Node i = 0; i < group_size - others; ++i) {
      idle.push_back(part[digit.begin + group * group_size + i]);
    }
  }
  for (std::size_t at = 0; at < idle.size(); at += k_ + 1) {
    step.average(std::span(idle).subspan(at, std::min<std::size_t>(k_ + 1, idle.size() - at)));
  }
}

void SimpleBaseGraph::average_groups(std::size_t l, std::uint64_t t, Part own, Step& step) const {
  const Digit& digit = digits_[l];
  if (digit.power == 0) {  // groups of one node: the whole part, which is smaller than k + 1
    if (!digit.inside.empty()) hyper_hypercube_step(digit.inside, t, own, step);
    return;
  }
  const std::vector<Node> factors(digit.power, k_ + 1);
  const Node size = digit.size / digit.groups;
  for (Node group = 0; group < digit.groups; ++group) {
    hyper_hypercube_step(factors, t, {own[group * size], size, own.stride}, step);
  }
}

BaseGraph::BaseGraph(Node nodes, Node k)
    : nodes_(nodes),
      blocks_(smooth_divisor(nodes, std::min(k, nodes) + 1)),
      inside_(nodes / blocks_, k),
      across_(*factorize(blocks_, std::min(k, nodes) + 1)) {
  SimpleBaseGraph all(nodes, k);
  if (all.length() <= inside_.length() + across_.size()) {
    blocks_ = 1;
    inside_ = std::move(all);
    across_.clear();
  }
}

std::uint64_t BaseGraph::length() const {
  return std::max<std::uint64_t>(1, inside_.length() + across_.size());
}

Step BaseGraph::step(std::uint64_t t) const {
  STARLING_CHECK(t < length());
  Step step = Step::idle(nodes_);
  const Node size = nodes_ / blocks_;
  if (t < inside_.length()) {
    for (Node block = 0; block < blocks_; ++block) inside_.lay(t, {block * size, size, 1}, step);
  } else if (!across_.empty()) {
    for (Node i = 0; i < size; ++i) {
      hyper_hypercube_step(across_, t - inside_.length(), {i, blocks_, size}, step);
    }
  }
  return step;
}

}  // namespace starling::topologies

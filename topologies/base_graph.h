// SPDX-License-Identifier: Apache-2.0
// Base-(k+1) graphs: sequences of sparse symmetric steps whose product is exactly the mean, for any
// number of nodes (Takezawa, Sato, Bao, Niwa, Yamada, "Beyond Exponential Graph", NeurIPS 2023).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topologies/step.h"

namespace starling::topologies {

// Node i of a part is first + i * stride.
struct Part {
  Node first = 0;
  Node size = 0;
  Node stride = 1;
  Node operator[](Node i) const { return first + i * stride; }
};

// n as a product of factors 2 .. largest, ascending, the large ones preferred; nothing where a
// prime factor is larger. 1 has no factors.
std::optional<std::vector<Node>> factorize(Node n, Node largest);

// The k-peer hyper-hypercube, step t (taken modulo its length): the nodes of `part`, written in the
// mixed radix `factors`, average with those that differ in digit t alone. Requires: factors not
// empty, their product is part.size.
void hyper_hypercube_step(std::span<const Node> factors, std::uint64_t t, Part part, Step& step);

// The Simple Base-(k+1) graph of `nodes`. Their number is written in base k + 1: one part a digit
// a_l that is not 0, of a_l (k+1)^p_l nodes, cut into a_l groups. First each part averages inside;
// then, a step a part, its groups take in one node each from every smaller part, with the weight
// that gives the group the mean of all; then groups average inside. Where every prime factor of
// `nodes` is at most k + 1, it is the hyper-hypercube.
class SimpleBaseGraph {
 public:
  SimpleBaseGraph(Node nodes, Node k);

  std::uint64_t length() const;  // steps; 0 for one node
  void lay(std::uint64_t t, Part part, Step& step) const;

 private:
  struct Digit {
    Node begin = 0;            // first node of the part
    Node size = 0;             // a_l (k+1)^p_l
    Node groups = 1;           // a_l
    Node power = 0;            // p_l
    std::vector<Node> inside;  // factors of the part
  };
  Node smaller(std::size_t l) const { return nodes_ - digits_[l].begin - digits_[l].size; }
  void take_in(std::size_t l, Part part, Step& step) const;
  void average_groups(std::size_t l, std::uint64_t t, Part part, Step& step) const;

  Node nodes_;
  Node k_;
  std::vector<Node> factors_;  // of all nodes, where it is a hyper-hypercube
  std::vector<Digit> digits_;  // largest part first
};

// n = p q with p the largest divisor whose prime factors are at most k + 1: the Simple Base-(k+1)
// graph on p blocks of q nodes at once, then hyper-hypercubes of p nodes across them; or the simple
// graph of all, where that is shorter. At most 2 log_{k+1}(n) + 2 steps.
class BaseGraph {
 public:
  // Requires: nodes >= 1, k >= 1.
  BaseGraph(Node nodes, Node k);

  std::uint64_t length() const;  // at least 1
  // Requires: t < length().
  Step step(std::uint64_t t) const;

 private:
  Node nodes_;
  Node blocks_;
  SimpleBaseGraph inside_;
  std::vector<Node> across_;
};

}  // namespace starling::topologies

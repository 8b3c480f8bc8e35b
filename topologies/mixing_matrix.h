// SPDX-License-Identifier: Apache-2.0
// The weights of one mixing step: W_ij is what node i gives to the message of node j. Sparse, and
// what it claims about its sums was checked when it was made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/graph/graph.h"

namespace starling::topologies {

using graph::Node;

struct Weight {
  Node node = 0;
  double weight = 0;
  friend bool operator==(const Weight&, const Weight&) = default;
};

// One entry W_ij, i != j: a message from `sender` to `receiver`.
struct MixingEntry {
  Node receiver = 0;
  Node sender = 0;
  double weight = 0;
};

class MixingMatrix {
 public:
  // Diagonal [nodes] and entries off the diagonal, in any order. Fails with "not-stochastic",
  // naming the row or column, where neither all rows nor all columns sum to 1 within 1e-12 (so
  // neither a mean nor a mass would be kept), where a weight is negative or not finite, or an entry
  // stands twice.
  [[nodiscard]] static Result<MixingMatrix> make(std::vector<double> diagonal,
                                                 std::vector<MixingEntry> entries);

  Node nodes() const { return static_cast<Node>(diagonal_.size()); }
  double self(Node node) const { return diagonal_[node]; }
  // Whose messages `node` mixes, with W_node,j; ascending. Valid as long as the matrix.
  std::span<const Weight> senders(Node node) const;
  // Who mixes the messages of `node`, with W_j,node; ascending.
  std::span<const Weight> receivers(Node node) const;

  bool row_stochastic() const { return row_stochastic_; }        // equal models stay equal
  bool column_stochastic() const { return column_stochastic_; }  // the sum over nodes is kept
  bool doubly_stochastic() const { return row_stochastic_ && column_stochastic_; }
  bool symmetric() const { return symmetric_; }  // exactly, entry by entry
  // Messages of one step: entries off the diagonal.
  std::uint64_t messages() const { return senders_.size(); }

 private:
  MixingMatrix() = default;

  std::vector<double> diagonal_;
  std::vector<std::uint64_t> senders_begin_;
  std::vector<Weight> senders_;
  std::vector<std::uint64_t> receivers_begin_;  // empty where symmetric
  std::vector<Weight> receivers_;
  bool row_stochastic_ = false;
  bool column_stochastic_ = false;
  bool symmetric_ = false;
};

}  // namespace starling::topologies

// SPDX-License-Identifier: Apache-2.0
// How many lying neighbours a topology bears under robust gossip. mu2: the second smallest
// eigenvalue of the Laplacian of the weights. Where each honest node has lying neighbours of weight
// b at most, the honest part keeps mu2 - b or more (the quadratic form of its Laplacian loses b at
// most), and a rule whose error is at most rho holds for sure where 2 rho b is less than that. At
// mu2 of the honest part <= 2 b no rule holds on every such graph.
#pragma once

#include <optional>

#include "topologies/spectral_report.h"

namespace starling::topologies {

struct Robustness {
  // In units of the heaviest link: of equal weights the algebraic connectivity of the graph. Where
  // iterations were used up, a bound from above.
  Figure mu2;
  // The most lying neighbours that every honest node may have:
  Node clip_sure = 0;    // with rule clip, rho = 2 of equal weights: 4 b < mu2 - b, else 3
  Node remove_sure = 0;  // with rule remove, rho = 4: 8 b < mu2 - b
  Node possible = 0;     // without being known impossible for any rule: 2 b < mu2 - b
};

// From its spectral report: of static topologies with symmetric weights and two or more nodes;
// nothing of others. Of unequal weights b counts the heaviest links. O(messages * log(degree)).
std::optional<Robustness> robustness(const Topology& topology, const SpectralReport& report);

// What the rule needs to mix anything on this matrix: nodes that mix nothing at all where `bad`
// neighbours of each may lie.
Node nodes_cut_off(const MixingMatrix& matrix, bool clips, std::size_t bad);

}  // namespace starling::topologies

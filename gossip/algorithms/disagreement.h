// SPDX-License-Identifier: Apache-2.0
// Whether mixing with momentum ends what nodes disagree by. Momentum turns a mode of eigenvalue
// lambda into a recursion of second order, and a complex lambda (directed graphs), or one that
// changes from step to step, can make it grow where plain mixing shrinks it.
#pragma once

#include "topologies/topology.h"

namespace starling::gossip {

// One mixing without gradients, x of the models, m of the momenta, both 0 in the mean.
enum class MomentumKind {
  kOuter,        // diloco:   m' = mu m + eta (W x - x),  x' = x + m'
  kQuasiGlobal,  // qg-dsgdm: x' = W (x - mu m),  m' = mu m + (1 - mu) (x - x')
};

struct MomentumMixing {
  MomentumKind kind = MomentumKind::kOuter;
  double momentum = 0;  // mu
  double rate = 1;      // eta, of kOuter
};

// Follows a random start over 60 to 400 mixings. O(nodes + messages) each; never more than seconds.
bool ends_disagreement(const topologies::Topology& topology, const MomentumMixing& mixing);

}  // namespace starling::gossip

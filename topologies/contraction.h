// SPDX-License-Identifier: Apache-2.0
// The numbers behind a spectral report: by how much a step brings the nodes closer to their mean.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "topologies/cayley.h"
#include "topologies/spectral_report.h"

namespace starling::topologies {

// mixed = W x, and W^T x. Both [nodes].
void mix(const MixingMatrix& matrix, std::span<const double> x, std::span<double> mixed);
void mix_transposed(const MixingMatrix& matrix, std::span<const double> x, std::span<double> mixed);

struct Contraction {
  std::optional<Figure> slem;        // as SpectralReport
  std::optional<Figure> lambda_min;  // likewise
  std::optional<Figure> lambda_2;    // likewise
};

// Of a topology with symmetry: the Fourier transform. A path or star: closed forms. Other symmetric
// matrices: all eigenvalues up to 512 nodes, Lanczos beyond. Matrices with detailed balance (the
// rule uniform): those of their symmetric relative. Others: all eigenvalues, or Arnoldi. Other
// periods: the largest singular value of the product. Drawn anew: the root of the expected squared
// factor, in closed form or over sampled steps. `connected` is that of the undirected union; where
// it is not, slem is 1, and beyond 512 nodes nothing else is looked for. Requires: nodes >= 2.
Contraction contraction(const Topology& topology, const std::optional<Group>& group,
                        bool connected);

// The steps from step 0 on whose product is the mean, seen by what they do to a random vector:
// rounding is all that a step leaves of its distance from the mean. Looks no further than a period,
// or 2 log2(nodes) + 2 steps of a static topology. Nothing for topologies drawn anew.
std::optional<std::uint64_t> finite_time(const Topology& topology);

}  // namespace starling::topologies

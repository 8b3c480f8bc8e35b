// SPDX-License-Identifier: Apache-2.0
// Matrices that look the same from every node, because W_ij depends only on j - i in an Abelian
// group: circulants, tori, hypercubes. Their eigenvalues are sums over characters of the group (the
// discrete Fourier transform of the first row). Recognised from the entries, whatever their name.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

#include "topologies/topology.h"

namespace starling::topologies {

// Z_rows x Z_columns, node = row * columns + column; or bit strings under exclusive or.
struct Group {
  Node rows = 1;
  Node columns = 1;
  bool bits = false;

  Node nodes() const { return rows * columns; }
  // j - i
  Node difference(Node i, Node j) const;
};

// The group under which the matrices of all steps of a period are invariant. Nothing for
// topologies drawn anew.
std::optional<Group> symmetry(const Topology& topology);

// An eigenvalue for each character, the one of the mean first. O(nodes * degree).
// Requires: the matrix is invariant under the group.
std::vector<std::complex<double>> spectrum(const MixingMatrix& matrix, const Group& group);

}  // namespace starling::topologies

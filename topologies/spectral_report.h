// SPDX-License-Identifier: Apache-2.0
// How fast a topology mixes: what a researcher compares, and what algorithms are judged fit by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "topologies/topology.h"

namespace starling::topologies {

// How a number was found: in closed form or by a Fourier transform; by an eigen-solver; as a bound
// (slem and the diameter from below, lambda_2 and rounds from below, lambda_min from above); from
// drawn steps.
enum class Certainty { kExact, kNumeric, kBound, kSampled };

struct Figure {
  double value = 0;
  Certainty certainty = Certainty::kExact;
};

struct SpectralReport {
  std::string name;
  Node nodes = 0;
  std::uint64_t edges = 0;  // of one step for time-varying topologies: the mean
  bool directed = false;
  bool time_varying = false;
  std::uint64_t period = 1;                                // 0: drawn again for every step
  double degree_min = 0, degree_mean = 0, degree_max = 0;  // messages that a node sends a step
  bool connected = false;          // of the union over a period; a drawn one: of its first steps
  std::optional<Figure> diameter;  // of the union over a period, along directions
  // The second largest modulus of an eigenvalue; of a time-varying topology the factor by which the
  // distance from the mean shrinks a step, geometric mean over a period (0 where it ends exactly).
  std::optional<Figure> slem;
  std::optional<Figure> lambda_min;  // the smallest eigenvalue; symmetric static matrices only
  std::optional<Figure> lambda_2;    // the second largest; likewise
  double spectral_gap() const;       // 1 - slem
  std::optional<Figure>
      rounds_to_consensus;  // until the distance from the mean is `error` of the first
  std::optional<std::uint64_t> finite_time;  // steps whose product is exactly the mean
};

struct ReportOptions {
  double consensus_error = 1e-3;
};

// Closed form or Fourier for circulants, a sparse eigen-solver otherwise: 100,000 nodes take
// seconds.
[[nodiscard]] Result<SpectralReport> analyse(const Topology& topology,
                                             const ReportOptions& options = {});

}  // namespace starling::topologies

// SPDX-License-Identifier: Apache-2.0
// A topology and its report as people and programs read them.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

#include "topologies/robustness.h"
#include "topologies/spectral_report.h"

namespace starling::gossip {

// {name, nodes, edges, directed, time_varying, period, degree: {min, mean, max}, diameter,
// connected, slem, spectral_gap, rounds_to_consensus, lambda_min, finite_time, bounds: [names of
// the figures that are bounds], sampled: [those found from drawn steps]}; what is not known is
// null.
boost::json::object to_json(const topologies::SpectralReport& report);
// {mu2, clip_sure, remove_sure, possible} (robustness.h); null where it is not known.
boost::json::value to_json(const std::optional<topologies::Robustness>& robustness);

// A line a fact, with a word on those that are bounds or sampled.
std::string to_text(const topologies::SpectralReport& report, double consensus_error);
// Lines on what the topology bears under the rules of `[robust]`.
std::string to_text(const std::optional<topologies::Robustness>& robustness);

// Lines of numbers up to 1,000 nodes, without a header; beyond, "receiver,sender,weight" lines of
// what is not 0, with one. Numbers read back as the same bits.
std::string to_csv(const topologies::MixingMatrix& matrix);

// An SVG figure: the layout that its name suggests; up to eight steps side by side where the
// topology varies in time. Nodes that are not `present` at the end of a run ([nodes]; empty: all
// are) are drawn hollow.
[[nodiscard]] Result<std::string> draw(const topologies::Topology& topology,
                                       std::vector<bool> present = {});

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/run_identity.h"

#include <fmt/format.h>

#include "core/base/durable_file.h"
#include "core/data/data_identity.h"
#include "core/linalg/kernels.h"

namespace starling::gossip {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

template <class T>
std::uint64_t sum_of(std::span<const T> values) {
  return checksum(std::as_bytes(values));
}

// The first step's matrix: all of a graph that comes from a file.
void add_topology(Sha256& hash, const topologies::Topology& topology) {
  const auto matrix = topology.at(0);
  Checksum sum;
  for (Node node = 0; node < matrix->nodes(); ++node) {
    for (const topologies::Weight& sender : matrix->senders(node)) {
      sum.update(std::as_bytes(std::span(&sender.node, 1)));
      sum.update(std::as_bytes(std::span(&sender.weight, 1)));
    }
  }
  hash.update(as_bytes(fmt::format("topology {:x}\n", sum.value())));
}

}  // namespace

Sha256Digest identity_of(const Experiment& experiment, const Settings& settings,
                         std::string_view version) {
  Sha256 hash;
  hash.update(as_bytes(fmt::format("{} {}\n", version, linalg::default_kernels().name)));
  for (const auto& [key, value] : settings)
    hash.update(as_bytes(fmt::format("{}={}\n", key, value)));
  hash.update(as_bytes(fmt::format("model {:x}\n", sum_of<float>(experiment.initial.values()))));
  if (!experiment.parts.empty()) data::add_dataset(hash, experiment.parts.front());
  for (const data::DatasetView& part : experiment.parts) data::add_rows(hash, part);
  if (experiment.evaluation) {
    data::add_dataset(hash, *experiment.evaluation);
    data::add_rows(hash, *experiment.evaluation);
  }
  if (experiment.topology) add_topology(hash, *experiment.topology);
  for (const std::string& file : {experiment.options.network.links, experiment.options.nodes.speeds,
                                  experiment.options.nodes.presence}) {
    if (file.empty()) continue;
    const auto text = read_text_file(file, kFileBytesMax);
    hash.update(as_bytes(text ? *text : file));
  }
  return std::move(hash).finish();
}

}  // namespace starling::gossip

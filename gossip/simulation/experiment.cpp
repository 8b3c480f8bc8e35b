// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/experiment.h"

#include <fmt/format.h>

#include "core/data/load.h"
#include "core/data/partition.h"
#include "core/train/row_block.h"

namespace starling::gossip {
namespace {

Result<std::vector<data::DatasetView>> load_parts(const NetOptions& options,
                                                  const data::DatasetSpec& dataset_spec) {
  STARLING_ASSIGN(const auto partition, data::PartitionSpec::parse(options.data.partition));
  data::LoadOptions load;
  load.group_column = partition.column;
  STARLING_ASSIGN(const auto dataset, data::load_dataset(dataset_spec, load));
  return data::partition_views(dataset, partition, options.topology.nodes);
}

Result<std::optional<data::DatasetView>> load_evaluation(const NetOptions& options,
                                                         const data::DatasetSpec& training) {
  const std::string& wanted = options.evaluate.dataset;
  if (wanted == "none") return std::optional<data::DatasetView>();
  data::DatasetSpec spec = training;
  if (wanted != "auto") {
    STARLING_ASSIGN(spec, data::DatasetSpec::parse(wanted));
  } else if (spec.kind == data::DatasetKind::kCsv || spec.split == data::Split::kTest) {
    // There is no other half to measure on.
    return std::optional<data::DatasetView>();
  } else {
    spec.split = data::Split::kTest;
  }
  STARLING_ASSIGN(auto dataset, data::load_dataset(spec));
  return std::optional(data::DatasetView{std::move(dataset)});
}

std::vector<std::vector<std::uint32_t>> count_labels(const std::vector<data::DatasetView>& parts) {
  std::vector<std::vector<std::uint32_t>> counts;
  for (const data::DatasetView& part : parts) {
    auto& row = counts.emplace_back(static_cast<std::size_t>(part.dataset->classes()));
    for (std::size_t i = 0; i < part.size(); ++i) ++row[static_cast<std::size_t>(part.label(i))];
  }
  return counts;
}

// Where everybody averages with everybody no edges are needed, and none of n * (n - 1) are made.
Result<std::unique_ptr<const topologies::Topology>> make_topology(
    const NetOptions& options, const std::vector<data::DatasetView>& parts) {
  if (traits(options.algorithm).pattern == Pattern::kMean) {
    return std::unique_ptr<const topologies::Topology>();
  }
  topologies::TopologyOptions wanted{.spec = options.topology.spec,
                                     .nodes = options.topology.nodes,
                                     .seed = options.topology_seed(),
                                     .mixing = options.topology.mixing};
  if (wanted.spec.starts_with("d-cliques")) wanted.label_counts = count_labels(parts);
  return topologies::Topology::make(wanted);
}

Result<void> check_split(const NetOptions& options, const data::Dataset& evaluation,
                         const model::Model& model) {
  const data::DatasetView whole{
      std::shared_ptr<const data::Dataset>(std::shared_ptr<const data::Dataset>(), &evaluation)};
  const auto fits = train::check_data(model, whole);
  if (!fits) return fits.error().within("evaluate.dataset = " + options.evaluate.dataset);
  return {};
}

}  // namespace

Result<Experiment> prepare(const NetOptions& options) {
  STARLING_TRY(options.validate());
  STARLING_ASSIGN(const auto dataset_spec, data::DatasetSpec::parse(options.data.dataset));
  STARLING_ASSIGN(auto parts, load_parts(options, dataset_spec));
  const data::Dataset& dataset = *parts.front().dataset;
  STARLING_ASSIGN(auto model, model::make_model(options.model, dataset.shape(), dataset.classes()));
  STARLING_ASSIGN(auto evaluation, load_evaluation(options, dataset_spec));
  if (evaluation) STARLING_TRY(check_split(options, *evaluation->dataset, *model));
  STARLING_ASSIGN(auto topology, make_topology(options, parts));
  const Node nodes = options.topology.nodes;
  STARLING_ASSIGN(auto network, sim::Network::make(options.network, nodes, options.run.seed));
  STARLING_ASSIGN(auto population, sim::Population::make(options.nodes, nodes, options.run.seed));
  const Setting setting{topology.get(), network.lossy() || population.churns()};
  STARLING_ASSIGN(Plan plan, plan_algorithm(options.algorithm, setting, nodes, options.run.seed));
  model::Parameters initial = model::initial_parameters(*model, options.run.seed);
  return Experiment{options,
                    std::move(model),
                    std::move(parts),
                    std::move(evaluation),
                    std::move(topology),
                    std::move(plan),
                    std::move(network),
                    std::move(population),
                    std::move(initial)};
}

}  // namespace starling::gossip

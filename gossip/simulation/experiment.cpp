// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/base/counted.h"
#include "core/data/hold_out.h"
#include "core/data/partition.h"
#include "core/data/row_names.h"
#include "core/model/external_model.h"
#include "core/train/row_block.h"
#include "gossip/algorithms/robust_fit.h"
#include "gossip/simulation/attack.h"
#include "gossip/training/builtin_trainings.h"
#include "gossip/training/initial_models.h"
#include "gossip/training/key_warnings.h"

namespace starling::gossip {
namespace {

Result<std::vector<data::DatasetView>> load_parts(const NetOptions& options,
                                                  const data::DatasetSpec& dataset_spec) {
  STARLING_ASSIGN(const auto partition, data::PartitionSpec::parse(options.data.partition));
  data::LoadOptions load;
  load.group_column = partition.column;
  STARLING_ASSIGN(auto dataset, data::load_dataset(dataset_spec, load));
  if (!options.data.columns.empty()) {
    const data::RowNames names{options.data.columns, dataset->class_names()};
    const auto fitted = data::fit_to(dataset, names, {dataset->name(), "data.columns", false});
    if (!fitted) return fitted.error().as(ErrorCategory::kUsage);
  }
  return data::partition_views(dataset, partition, options.topology.nodes);
}

// Takes from each part what its node holds out, as a device does (data.hold-out), and returns it.
std::optional<data::DatasetView> hold_out(std::vector<data::DatasetView>& parts, double fraction) {
  std::vector<data::DatasetView> held_out;
  for (data::DatasetView& part : parts) {
    data::Divided divided = data::hold_out(part, fraction);
    part = std::move(divided.training);
    if (divided.held_out) held_out.push_back(std::move(*divided.held_out));
  }
  return data::pooled(held_out);
}

// None: nothing, or what the nodes hold out.
Result<std::optional<data::DatasetSpec>> evaluation_spec(const NetOptions& options,
                                                         data::DatasetSpec spec) {
  const std::string& wanted = options.evaluate.dataset;
  if (wanted == "auto" && spec.has_test_split()) {
    spec.split = data::Split::kTest;
    return std::optional(std::move(spec));
  }
  if (wanted == "auto" || wanted == "none") return std::optional<data::DatasetSpec>();
  STARLING_ASSIGN(spec, data::DatasetSpec::parse(wanted));
  return std::optional(std::move(spec));
}

Result<std::optional<data::DatasetView>> load_evaluation(const NetOptions& options,
                                                         const data::DatasetSpec& training,
                                                         std::vector<data::DatasetView>& parts) {
  STARLING_ASSIGN(const auto spec, evaluation_spec(options, training));
  if (!spec) return hold_out(parts, options.held_out());
  STARLING_ASSIGN(auto dataset, data::load_dataset(*spec));
  // Each file has its own order of columns, and numbers its texts by itself.
  const data::Dataset& trained_on = *parts.front().dataset;
  const data::NamedAs as{dataset->name(), trained_on.name(), false};
  const auto fitted = data::fit_to(dataset, data::names_of(trained_on), as);
  if (!fitted) return fitted.error().as(ErrorCategory::kUsage).within("evaluate.dataset");
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

// The graph is made of the labels that each node holds.
bool needs_labels(const NetOptions& options) {
  return options.topology.spec.starts_with("d-cliques");
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
                                     .mixing = options.topology.mixing,
                                     .own = own_topologies(options.algorithm.own)};
  if (needs_labels(options)) wanted.label_counts = count_labels(parts);
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

// A deadline was set where every message comes.
bool waits_for_nothing(const NetOptions& options) {
  if (options.network.deadline == sim::NetworkOptions().deadline) return false;
  const Node nodes = options.topology.nodes;
  const auto network = sim::Network::make(options.network, nodes, options.run.seed);
  const auto population = sim::Population::make(options.nodes, nodes, options.run.seed);
  return network && population && !network->lossy() && !population->churns();
}

// What the nodes compute with.
struct Computed {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const NetworkTrainers> trainers;
  std::vector<data::DatasetView> parts;
  std::optional<data::DatasetView> evaluation;
  model::Parameters initial;
};

// What lies between the nodes.
struct Arranged {
  std::unique_ptr<const topologies::Topology> topology;
  sim::Network network;
  sim::Population population;
  Plan plan;
};

// `parts`: what graphs of labels are made of.
Result<Arranged> arrange(const NetOptions& options, const std::vector<data::DatasetView>& parts,
                         Simulated simulated) {
  STARLING_ASSIGN(auto topology, make_topology(options, parts));
  const Node nodes = options.topology.nodes;
  STARLING_ASSIGN(auto network, sim::Network::make(options.network, nodes, options.run.seed));
  STARLING_ASSIGN(auto population, sim::Population::make(options.nodes, nodes, options.run.seed));
  const Setting setting{.topology = topology.get(),
                        .lossy = network.lossy() || population.churns(),
                        .robust = options.robust,
                        .by_peers = simulated == Simulated::kPeers};
  STARLING_TRY(check_attack(options));
  STARLING_ASSIGN(Plan plan, plan_algorithm(options.algorithm, setting, nodes, options.run.seed));
  return Arranged{std::move(topology), std::move(network), std::move(population), std::move(plan)};
}

Result<Experiment> complete(const NetOptions& options, Computed computed, Simulated simulated) {
  STARLING_ASSIGN(Arranged arranged, arrange(options, computed.parts, simulated));
  return Experiment{.options = options,
                    .model = std::move(computed.model),
                    .trainers = std::move(computed.trainers),
                    .parts = std::move(computed.parts),
                    .evaluation = std::move(computed.evaluation),
                    .topology = std::move(arranged.topology),
                    .plan = std::move(arranged.plan),
                    .network = std::move(arranged.network),
                    .population = std::move(arranged.population),
                    .initial = std::move(computed.initial)};
}

// The trainers hold the data.
Result<Experiment> prepare_external(const NetOptions& options,
                                    std::shared_ptr<const NetworkTrainers> trainers,
                                    Simulated simulated) {
  if (needs_labels(options)) {
    return wrong_setting("setting-invalid",
                         "d-cliques needs every node's labels, which only the trainer knows; use "
                         "another topology");
  }
  if (options.evaluate.dataset != "auto" && options.evaluate.dataset != "none") {
    return wrong_setting("setting-invalid",
                         "the trainer evaluates on the rows that each node holds out: leave "
                         "evaluate.dataset alone, or set it to \"none\"");
  }
  STARLING_ASSIGN(model::Parameters initial, trainers->initial(options));
  NetOptions known = options;  // what peers are told
  known.model.layout = model::digest_of(*initial.layout()).hex();
  std::string& file = known.model.initial;
  if (!file.empty()) file = std::filesystem::absolute(file).string();
  return complete(known,
                  {.model = {},
                   .trainers = std::move(trainers),
                   .parts = {},
                   .evaluation = {},
                   .initial = std::move(initial)},
                  simulated);
}

}  // namespace

Result<void> check(const NetOptions& options, data::ReadableDatasets& datasets,
                   Simulated simulated) {
  STARLING_TRY(options.validate());
  STARLING_ASSIGN(const auto partition, data::PartitionSpec::parse(options.data.partition));
  if (!options.model.is_external()) {
    STARLING_ASSIGN(const auto training, data::DatasetSpec::parse(options.data.dataset));
    STARLING_ASSIGN(const auto evaluation, evaluation_spec(options, training));
    STARLING_TRY(datasets.check(options.data.dataset, partition.column));
    if (evaluation) STARLING_TRY(datasets.check(evaluation->to_string()));
  }
  if (needs_labels(options)) return {};
  STARLING_TRY(arrange(options, {}, simulated));
  return {};
}

std::vector<std::string> warnings(const NetOptions& options) {
  auto sentences = warnings_of_keys(options);
  if (waits_for_nothing(options)) {
    sentences.emplace_back(
        "network.deadline has no effect: no message is lost, no network splits and no node leaves");
  }
  // Here, since real devices read files of their own, whatever data.dataset says.
  if (!options.data.columns.empty() && !options.data.dataset.starts_with("csv:")) {
    sentences.emplace_back("data.columns has no effect: data.dataset is no csv file");
  }
  if (!options.robust.is_on() || needs_labels(options)) return sentences;
  const auto topology = make_topology(options, {});
  if (!topology || !*topology) return sentences;  // refused elsewhere
  std::ranges::move(robust_warnings(options.robust, **topology), std::back_inserter(sentences));
  return sentences;
}

std::string evaluation_note(const Experiment& experiment) {
  const NetOptions& options = experiment.options;
  if (options.model.is_external() || options.evaluate.dataset != "auto") return {};
  const double fraction = options.evaluate.hold_out;
  if (!experiment.evaluation && fraction == 0) {
    return "nothing is evaluated: set evaluate.dataset, or evaluate.hold-out above 0 "
           "(evaluate.dataset = none says that nothing is to be)";
  }
  if (!experiment.evaluation) {
    return fmt::format(
        "nothing is evaluated: with evaluate.hold-out = {:g} none of the {} holds rows out; raise "
        "it, or set evaluate.dataset",
        fraction, counted(experiment.nodes(), "node"));
  }
  if (options.held_out() == 0) return {};
  return fmt::format("evaluates on {} that the nodes hold out (evaluate.hold-out = {:g})",
                     counted(experiment.evaluation->size(), "row"), fraction);
}

Result<Experiment> prepare(const NetOptions& options,
                           std::shared_ptr<const NetworkTrainers> trainers, Simulated simulated) {
  STARLING_TRY(options.validate());
  if (trainers) return prepare_external(options, std::move(trainers), simulated);
  STARLING_ASSIGN(const auto dataset_spec, data::DatasetSpec::parse(options.data.dataset));
  STARLING_ASSIGN(auto parts, load_parts(options, dataset_spec));
  const data::Dataset& dataset = *parts.front().dataset;
  STARLING_ASSIGN(auto model, model::make_model(options.model, dataset.shape(), dataset.classes()));
  STARLING_ASSIGN(auto evaluation, load_evaluation(options, dataset_spec, parts));
  if (evaluation) STARLING_TRY(check_split(options, *evaluation->dataset, *model));
  model::Parameters initial = model::initial_parameters(*model, options.run.seed);
  return complete(options,
                  {.model = std::move(model),
                   .trainers = {},
                   .parts = std::move(parts),
                   .evaluation = std::move(evaluation),
                   .initial = std::move(initial)},
                  simulated);
}

std::vector<float> Experiment::initial_of(Node node) const {
  return initial_model_of(options, initial.values(), node);
}

std::unique_ptr<NodeTrainings> Experiment::trainings(unsigned threads) const {
  if (trainers) return trainers->trainings(options);
  auto made = std::make_unique<BuiltinTrainings>(model, options.train.train, threads);
  for (Node node = 0; node < nodes(); ++node) made->add(parts[node], options.run.seed, node);
  return made;
}

}  // namespace starling::gossip

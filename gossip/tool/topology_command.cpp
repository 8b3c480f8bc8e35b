// SPDX-License-Identifier: Apache-2.0
// topology SPEC: how a topology mixes, its matrix, or a figure of it.
#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <ostream>

#include "core/config/command_line.h"
#include "gossip/algorithms/algorithm_options.h"
#include "gossip/tool/commands.h"
#include "gossip/tool/topology_view.h"
#include "topologies/topology.h"

namespace starling::gossip {
namespace {

struct TopologyFlags {
  topologies::TopologyOptions topology;
  topologies::ReportOptions report;
  std::uint64_t step = 0;
  std::string format = "text";
};

Result<std::string> view(const TopologyFlags& flags) {
  if (flags.topology.nodes == 0 && !flags.topology.spec.starts_with("file:")) {
    return config::usage_error("the number of nodes is missing or 0; give --nodes N");
  }
  STARLING_ASSIGN(const auto topology, topologies::Topology::make(flags.topology));
  if (flags.format == "csv") return to_csv(*topology->at(flags.step));
  if (flags.format == "svg") return draw(*topology);
  STARLING_ASSIGN(const auto report, topologies::analyse(*topology, flags.report));
  const auto robustness = topologies::robustness(*topology, report);
  if (flags.format == "json") {
    boost::json::object object = to_json(report);
    object["robustness"] = to_json(robustness);
    return boost::json::serialize(object) + "\n";
  }
  return to_text(report, flags.report.consensus_error) + to_text(robustness);
}

int run(const TopologyFlags& flags, CommandContext& context) {
  const auto text = view(flags);
  if (!text) return config::report(text.error(), context.err);
  context.out << *text;
  return 0;
}

}  // namespace

void add_topology_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "topology", "print how fast a topology mixes, its mixing matrix, or a figure of it");
  const auto flags = std::make_shared<TopologyFlags>();
  flags->topology.own = own_topologies(context.algorithms);
  command
      ->add_option("spec", flags->topology.spec,
                   "the topology, as ring or base-graph:k=1; an unknown one prints all")
      ->required()
      ->type_name("SPEC");
  command->add_option("--nodes", flags->topology.nodes, "number of nodes; of file:PATH as it says")
      ->type_name("N");
  command->add_option("--seed", flags->topology.seed, "of topologies that are drawn")
      ->capture_default_str();
  command->add_option("--mixing", flags->topology.mixing, "how weights are laid on the graph")
      ->type_name("own|metropolis|uniform|push|max-degree|lazy")
      ->capture_default_str();
  command->add_option("--step", flags->step, "whose matrix --format csv prints, from 0")
      ->type_name("T")
      ->capture_default_str();
  command
      ->add_option("--consensus-error", flags->report.consensus_error,
                   "which part of the first distance from the mean counts as consensus")
      ->capture_default_str();
  command->add_option("--format", flags->format, "text, json, svg, or csv: the matrix of a step")
      ->check(CLI::IsMember({"text", "json", "svg", "csv"}))
      ->type_name("text|json|svg|csv")
      ->capture_default_str();
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return run(*flags, context); }; });
}

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/tool/run_text.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>
#include <ostream>
#include <ranges>
#include <vector>

#include "core/base/counted.h"
#include "core/base/decimal.h"
#include "core/telemetry/quantities.h"
#include "core/telemetry/terminal_chart.h"
#include "gossip/tool/run_writer.h"

namespace starling::gossip {

std::string describe(const Measurement& m, std::uint64_t steps, std::uint64_t nodes,
                     std::string_view time) {
  // The accuracy is the mean of those that are there.
  const std::string there =
      m.nodes_up == nodes ? "" : fmt::format(", {} of {} nodes", m.nodes_up, nodes);
  std::string line = fmt::format("[step {}/{}{}]", m.step, steps, there);
  if (m.train_loss) line += fmt::format(" train loss {:.4f}", *m.train_loss);
  if (m.eval_accuracy) line += fmt::format("  accuracy {:.4f}", *m.eval_accuracy);
  // Before the time, whose width would decide whether 80 columns show it.
  line += fmt::format("  consensus {:.3g}  {}{}", m.consensus_distance,
                      telemetry::format_seconds(m.virtual_seconds), time);
  if (m.eval_accuracy) {
    line += fmt::format("  mean model {:.4f}  eval loss {:.4f}", *m.eval_accuracy_mean_model,
                        *m.eval_loss);
  } else if (m.eval_loss) {
    line += fmt::format("  eval loss {}", decimal(*m.eval_loss));
  }
  constexpr std::size_t kMetricsShown = 3;
  for (const auto& [name, value] : m.eval_metrics | std::views::take(kMetricsShown)) {
    line += fmt::format("  {} {}", name, decimal(value));
  }
  return line + "  sent " + telemetry::format_bytes(m.bytes_sent);
}

void print_summary(const SimulationResult& result, const SummaryOptions& options,
                   std::ostream& out) {
  std::vector<double> curve;
  std::vector<double> steps;
  for (const Measurement& m : result.measurements) {
    steps.push_back(static_cast<double>(m.step));
    curve.push_back(m.eval_accuracy.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  if (result.measurements.back().eval_accuracy) {
    out << telemetry::line_chart(
        curve, options.terminal,
        {.title = "accuracy, mean over nodes", .x_label = "step", .at = std::move(steps)});
  }
  const Totals& totals = result.totals;
  out << fmt::format("{}, {}: {}{}, {} in {}\n", counted(options.nodes, "node"),
                     counted(totals.step, "step"),
                     telemetry::format_seconds(totals.virtual_seconds), options.time,
                     telemetry::format_bytes(totals.traffic.bytes_sent),
                     counted(totals.traffic.messages, "message"));
  out << fmt::format("{:.0f} node-steps/s on {}, trace {}\n",
                     static_cast<double>(totals.node_steps) / result.stepping_seconds,
                     counted(options.threads, "thread"), result.trace.hex().substr(0, 16));
  if (!options.out.empty()) out << "written: " << options.out << "/report.html\n";
}

boost::json::object result_to_json(const SimulationResult& result) {
  boost::json::array measurements;
  for (const Measurement& m : result.measurements) measurements.push_back(to_json(m));
  return {{"measurements", std::move(measurements)},
          {"node_steps_per_second",
           static_cast<double>(result.totals.node_steps) / result.stepping_seconds},
          {"models_sha256", result.models.hex()},
          {"trace_sha256", result.trace.hex()}};
}

}  // namespace starling::gossip

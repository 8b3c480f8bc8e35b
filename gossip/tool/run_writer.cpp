// SPDX-License-Identifier: Apache-2.0
#include "gossip/tool/run_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "core/base/durable_file.h"
#include "core/config/settings_json.h"
#include "core/linalg/kernels.h"
#include "core/model/safetensors.h"
#include "core/report/file_sums.h"
#include "core/report/run_directory.h"
#include "core/sim/written_values.h"
#include "core/study/input_digests.h"
#include "core/study/study.h"
#include "gossip/tool/topology_view.h"
#include "topologies/spectral_report.h"

namespace starling::gossip {
namespace {

// JSON knows no infinity and no NaN.
boost::json::value number(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

boost::json::value number(const std::optional<std::uint64_t>& value) {
  if (!value) return nullptr;
  return *value;
}

boost::json::value metrics_to_json(const train::Metrics& metrics) {
  if (metrics.empty()) return nullptr;
  boost::json::object object;
  for (const auto& [name, value] : metrics) object[name] = number(std::optional(value));
  return object;
}

boost::json::object totals_to_json(const SimulationResult& result) {
  const Totals& totals = result.totals;
  const double seconds = result.stepping_seconds;
  return {{"virtual_seconds", totals.virtual_seconds},
          {"wall_seconds", result.wall_seconds},
          {"bytes_sent", totals.traffic.bytes_sent},
          {"messages", totals.traffic.messages},
          {"node_steps", totals.node_steps},
          {"node_steps_per_second",
           number(std::optional(static_cast<double>(totals.node_steps) / seconds))}};
}

// All pairs of nodes, or in large networks those that an edge joins in some step of the topology's
// period: what the run used, unless nodes find each other.
Result<sim::Pairs> written_pairs(const Experiment& experiment) {
  const Node nodes = experiment.nodes();
  if (nodes <= sim::kAllPairsMax) return sim::all_pairs(nodes);
  sim::Pairs pairs;
  if (!experiment.topology || experiment.topology->period() == 0) return pairs;
  STARLING_ASSIGN(const auto edges, topologies::union_graph(*experiment.topology));
  for (Node a = 0; a < nodes; ++a) {
    for (const Node b : edges.successors(a)) pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  std::ranges::sort(pairs);
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

// Holds nothing, or what a crash left before anything was written.
Result<void> check_new(const std::filesystem::path& directory) {
  std::error_code ignored;
  const auto holds = [&](const char* name) {
    return std::filesystem::exists(directory / name, ignored);
  };
  const auto taken_by = [&](std::string_view what) {
    return rejected("out-not-empty",
                    fmt::format("{} holds a {}: name a new directory with --out, or remove it",
                                directory.string(), what));
  };
  if (holds("summary.json")) return taken_by("finished run");
  if (holds(report::kSumsFile)) return taken_by("finished run that lacks its summary.json");
  if (holds("metrics.jsonl")) return taken_by("run that ended early and cannot go on");
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (is_temporary(entry.path().filename().string())) continue;
    return rejected("out-not-empty",
                    directory.string() + " is not empty: name a new directory with --out");
  }
  return {};
}

// Another command that writes the same run would destroy it.
Result<DirectoryLock> lock(const std::filesystem::path& directory) {
  DirectoryLock lock(directory);
  if (!lock.held_elsewhere()) return lock;
  return rejected("out-in-use", fmt::format("another command writes a run into {}: wait for its "
                                            "end, or name another directory with --out",
                                            directory.string()));
}

// What summary.json and unfinished.json share.
boost::json::object beginning_to_json(std::string_view program, const Experiment& experiment,
                                      const Settings& settings, const Settings& inputs) {
  const NetOptions& options = experiment.options;
  boost::json::object beginning = {{"program", program},
                                   {"version", STARLING_VERSION},
                                   {"instruction_set", linalg::default_kernels().name},
                                   {"settings", config::to_json(settings)},
                                   {"seed", options.run.seed},
                                   {"algorithm", options.algorithm.name},
                                   {"nodes", options.topology.nodes},
                                   {"parameters", experiment.parameters()}};
  if (!inputs.empty()) beginning["inputs"] = config::to_json(inputs);
  return beginning;
}

Result<void> write_unfinished(const std::filesystem::path& directory,
                              const boost::json::object& beginning) {
  const std::string text = boost::json::serialize(beginning) + "\n";
  return write_durably(directory / report::kUnfinishedFile, as_bytes(text));
}

}  // namespace

boost::json::object to_json(const Measurement& m) {
  return {{"step", m.step},
          {"virtual_seconds", m.virtual_seconds},
          {"wall_seconds", m.wall_seconds},
          {"train_loss", number(m.train_loss)},
          {"eval_loss", number(m.eval_loss)},
          {"eval_accuracy", number(m.eval_accuracy)},
          {"eval_accuracy_min", number(m.eval_accuracy_min)},
          {"eval_accuracy_max", number(m.eval_accuracy_max)},
          {"eval_loss_mean_model", number(m.eval_loss_mean_model)},
          {"eval_accuracy_mean_model", number(m.eval_accuracy_mean_model)},
          {"eval_metrics", metrics_to_json(m.eval_metrics)},
          {"consensus_distance", number(std::optional(m.consensus_distance))},
          {"bytes_sent", m.bytes_sent},
          {"messages", m.messages},
          {"messages_arrived", number(m.messages_arrived)},
          {"messages_late", number(m.messages_late)},
          {"messages_lost", number(m.messages_lost)},
          {"staleness", number(m.staleness)},
          {"nodes_up", m.nodes_up}};
}

Result<RunWriter> RunWriter::make(const std::filesystem::path& directory) {
  STARLING_TRY(make_directory(directory));
  STARLING_ASSIGN(DirectoryLock in_use, lock(directory));
  STARLING_TRY(check_new(directory));
  STARLING_ASSIGN(RunWriter writer, open(directory));
  writer.in_use_ = std::move(in_use);
  return writer;
}

Result<RunWriter> RunWriter::open(const std::filesystem::path& directory) {
  RunWriter writer(directory);
  writer.metrics_.open(directory / "metrics.jsonl", std::ios::binary);
  if (!writer.metrics_) {
    return rejected("cannot-write",
                    fmt::format("{} cannot be made: may the directory be written to?",
                                (directory / "metrics.jsonl").string()));
  }
  return writer;
}

Result<RunWriter> RunWriter::begin_or_resume(const std::filesystem::path& directory,
                                             std::string_view program, const Experiment& experiment,
                                             const Settings& settings) {
  STARLING_TRY(make_directory(directory));
  STARLING_ASSIGN(DirectoryLock in_use, lock(directory));
  Settings inputs = study::InputDigests().of(settings);
  const auto difference = study::difference_to_unfinished(directory, program, settings, inputs);
  if (difference && !difference->empty()) {
    return rejected(
        "out-not-empty",
        fmt::format("{} holds {} with other settings ({}): name a new directory with "
                    "--out, or remove it",
                    directory.string(), study::unfinished_words(directory), *difference));
  }
  if (!difference) STARLING_TRY(check_new(directory));
  auto beginning = beginning_to_json(program, experiment, settings, inputs);
  STARLING_TRY(write_unfinished(directory, beginning));
  sweep_temporaries(directory);
  STARLING_ASSIGN(RunWriter writer, open(directory));
  writer.beginning_ = std::move(beginning);
  writer.inputs_ = std::move(inputs);
  writer.in_use_ = std::move(in_use);
  return writer;
}

Result<void> RunWriter::fail(const Error& why) {
  beginning_["failed"] = why.message();
  return write_unfinished(directory_, beginning_);
}

std::filesystem::path RunWriter::checkpoint_in(const std::filesystem::path& directory) {
  return directory / report::kCheckpointFile;
}

std::vector<std::string> RunWriter::files() {
  return {report::kUnfinishedFile, report::kCheckpointFile,
          "metrics.jsonl",         "model.safetensors",
          "topology.svg",          sim::kLinksFile,
          sim::kSpeedsFile,        sim::kPresenceFile,
          "report.html",           "curves",
          report::kSumsFile,       report::kCheckedFile,
          "summary.json"};
}

Result<void> RunWriter::write(const Measurement& measurement) {
  metrics_ << boost::json::serialize(to_json(measurement)) << std::endl;
  if (metrics_) return {};
  return rejected("cannot-write", fmt::format("{} cannot be written: is the disk full?",
                                              (directory_ / "metrics.jsonl").string()));
}

Result<void> RunWriter::finish(std::string_view program, const Experiment& experiment,
                               const SimulationResult& result, const Settings& settings) {
  const NetOptions& options = experiment.options;
  boost::json::object summary = beginning_to_json(program, experiment, settings, inputs_);
  if (!result.incomplete.empty()) summary["incomplete"] = result.incomplete;
  summary["steps"] = result.totals.step;
  summary["totals"] = totals_to_json(result);
  summary["final"] = to_json(result.measurements.back());
  summary["models_sha256"] = result.models.hex();
  summary["trace_sha256"] = result.trace.hex();
  if (experiment.topology) {
    STARLING_ASSIGN(const auto mixing, topologies::analyse(*experiment.topology));
    summary["topology"] = to_json(mixing);
    STARLING_ASSIGN(const std::string drawing, draw(*experiment.topology, result.present));
    STARLING_TRY(write_durably(directory_ / "topology.svg", as_bytes(drawing)));
  } else {
    summary["topology"] = nullptr;
  }
  STARLING_ASSIGN(sim::Pairs pairs, written_pairs(experiment));
  STARLING_TRY(sim::write_values(directory_, {.network = experiment.network,
                                              .access_links = experiment.nodes(),
                                              .pairs = std::move(pairs),
                                              .population = experiment.population,
                                              .nodes = experiment.nodes(),
                                              .until = result.totals.virtual_seconds}));
  const model::Metadata metadata{{"algorithm", options.algorithm.name},
                                 {"nodes", std::to_string(options.topology.nodes)},
                                 {"step", std::to_string(result.totals.step)}};
  STARLING_TRY(
      model::write_safetensors(directory_ / "model.safetensors", result.mean_model, metadata));
  metrics_.close();
  STARLING_TRY(sync_file(directory_ / "metrics.jsonl"));
  const std::string text = boost::json::serialize(summary) + "\n";
  STARLING_TRY(report::write_report(directory_, report::RunKind::kGossip, text));
  const std::vector<std::string> names = {"metrics.jsonl", "model.safetensors", "topology.svg",
                                          sim::kLinksFile, sim::kSpeedsFile,    sim::kPresenceFile};
  STARLING_TRY(report::write_sums(directory_, names, "summary.json", text));
  STARLING_TRY(write_durably(directory_ / "summary.json", as_bytes(text)));
  STARLING_TRY(remove_durably(directory_ / report::kCheckpointFile));
  return remove_durably(directory_ / report::kUnfinishedFile);
}

}  // namespace starling::gossip

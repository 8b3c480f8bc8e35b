// SPDX-License-Identifier: Apache-2.0
#include "tests/report/run_samples.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

namespace starling::report::testing {

namespace json = boost::json;

std::string summary(const std::string& topology) {
  return json::serialize(json::value{
      {"program", "starling-gossip simulate"},
      {"version", "0.1.0"},
      {"settings",
       {{"topology.spec", topology}, {"algorithm.name", "dpsgd"}, {"train.local-steps", "1"}}},
      {"seed", 1},
      {"algorithm", "dpsgd"},
      {"topology",
       {{"name", topology},
        {"nodes", 16},
        {"edges", 16},
        {"directed", false},
        {"degree", {{"min", 2}, {"mean", 2}, {"max", 2}}},
        {"diameter", 8},
        {"connected", true},
        {"slem", 0.949},
        {"spectral_gap", 0.051},
        {"rounds_to_consensus", nullptr}}},
      {"nodes", 16},
      {"steps", 290},
      {"parameters", 7850},
      {"totals",
       {{"virtual_seconds", 29.0}, {"bytes_sent", 145696000}, {"node_steps_per_second", 5000.5}}},
      {"trace_sha256", "ab12"}});
}

std::string metrics_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const double t = i / 7.0;
    json::object line{
        {"step", 10 * i},
        {"virtual_seconds", i * 1.0 / 3},
        {"wall_seconds", 0.001 * i},
        {"train_loss", i == 0 ? json::value(nullptr) : json::value(2.3 * std::exp(-t))},
        {"eval_loss", 2.4 * std::exp(-t)},
        {"eval_accuracy", 0.9 - 0.8 * std::exp(-t)},
        {"eval_accuracy_min", 0.85 - 0.8 * std::exp(-t)},
        {"eval_accuracy_max", 0.95 - 0.8 * std::exp(-t)},
        {"eval_accuracy_mean_model", 0.91 - 0.8 * std::exp(-t)},
        {"eval_loss_mean_model", 2.35 * std::exp(-t)},
        {"consensus_distance", i * std::exp(-t) * 1e-3},
        {"bytes_sent", 5024000LL * i},
        {"messages", 160LL * i},
        {"messages_arrived", 158LL * i},
        {"messages_late", 3LL * i},
        {"messages_lost", 2LL * i},
        {"staleness", i == 0 ? json::value(nullptr) : json::value(0.02)},
        {"nodes_up", i % 5 == 4 ? 15 : 16}};
    if (i == 3) line["eval_accuracy"] = line["eval_loss"] = nullptr;
    text += json::serialize(line) + "\n";
  }
  return text;
}

std::string federated_run(int rounds) {
  json::array array;
  const auto add = [&](int round, const char* state) {
    const bool committed = std::string_view(state) == "committed";
    json::object object{
        {"round", round}, {"state", state}, {"seconds", 2.0}, {"bytes_in", 100}, {"bytes_out", 50}};
    object["eval_accuracy"] = committed ? json::value(1 - 0.5 / round) : json::value(nullptr);
    object["train_loss"] = committed ? json::value(1.0 / round) : json::value(nullptr);
    array.push_back(std::move(object));
  };
  for (int round = 1; round <= rounds; ++round) {
    if (round == 2) add(round, "abandoned");
    add(round, "committed");
  }
  return json::serialize(json::value{{"id", 1},
                                     {"name", "fashion"},
                                     {"state", "completed"},
                                     {"seed", 7},
                                     {"rounds", std::move(array)}});
}

Run sample_run(std::vector<std::pair<std::string, std::string>> settings, double accuracy) {
  Run run;
  run.settings = std::move(settings);
  run.nodes = 4;
  run.algorithm = "dpsgd";
  for (const auto& [key, value] : run.settings) {
    run.directory += (run.directory.empty() ? "" : ",") + key + "=" + value;
    if (key == "seed") run.seed = std::stod(value);
    if (key == "topology.spec") run.topology = TopologyFacts{.name = value, .slem = 0.9};
  }
  for (const double step : {0.0, 50.0, 100.0}) {
    Evaluation& evaluation = run.evaluations.emplace_back();
    evaluation.at(Measure::kStep) = step;
    evaluation.at(Measure::kVirtualSeconds) = step / 10;
    evaluation.at(Measure::kBytesSent) = step * 1000;
    evaluation.at(Measure::kEvalAccuracy) = accuracy * step / 100;
    evaluation.at(Measure::kEvalLoss) = 2.3 - accuracy * step / 100;
    evaluation.at(Measure::kConsensusDistance) = 1 / (1 + step);
  }
  return run;
}

std::vector<Run> sample_study() {
  std::vector<Run> runs;
  double accuracy = 0.5;
  for (const char* topology : {"ring", "torus:4x4", "exponential"}) {
    for (const char* local_steps : {"1", "4", "16"}) {
      for (const char* rate : {"0.1", "0.05", "0.01"}) {
        for (const char* seed : {"1", "2", "3"}) {
          runs.push_back(sample_run({{"seed", seed},
                                     {"topology.spec", topology},
                                     {"train.local-steps", local_steps},
                                     {"train.learning-rate", rate},
                                     {"data.partition", "iid"}},
                                    accuracy += 0.005));
        }
      }
    }
  }
  return runs;
}

}  // namespace starling::report::testing

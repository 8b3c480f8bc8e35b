// SPDX-License-Identifier: Apache-2.0
// What a report knows of a run: its measures over time and its facts, whoever wrote them. A gossip
// simulation measures at steps, a federated run at the end of its rounds.
#pragma once

#include <array>
#include <compare>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/report/scale.h"

namespace starling::report {

enum class Measure {
  kStep,  // since the start; of a federated run the round
  kVirtualSeconds,
  kWallSeconds,
  kTrainLoss,
  kEvalLoss,
  kEvalAccuracy,  // mean over nodes; of a federated run that of the one model
  kEvalAccuracyMin,
  kEvalAccuracyMax,
  kEvalAccuracyMeanModel,
  kEvalLossMeanModel,
  kConsensusDistance,
  kBytesSent,  // since the start, by all nodes; of a federated run both ways
  kMessages,
  kMessagesArrived,
  kMessagesLate,
  kMessagesLost,
  kStaleness,
  kNodesUp,
  kHeldOutLoss,  // of a federated run: by clients on their held-out rows
  kHeldOutAccuracy,
};

struct MeasureInfo {
  std::string_view key;    // in metrics.jsonl or, of rounds, in run.json
  std::string_view title;  // for people
  Quantity quantity = Quantity::kNumber;
};

inline constexpr std::array<MeasureInfo, 20> kMeasures = {{
    {"step", "step"},
    {"virtual_seconds", "virtual time", Quantity::kSeconds},
    {"wall_seconds", "wall time", Quantity::kSeconds},
    {"train_loss", "train loss"},
    {"eval_loss", "eval loss"},
    {"eval_accuracy", "accuracy"},
    {"eval_accuracy_min", "accuracy of the worst node"},
    {"eval_accuracy_max", "accuracy of the best node"},
    {"eval_accuracy_mean_model", "accuracy of the mean model"},
    {"eval_loss_mean_model", "eval loss of the mean model"},
    {"consensus_distance", "consensus distance"},
    {"bytes_sent", "bytes sent", Quantity::kBytes},
    {"messages", "messages"},
    {"messages_arrived", "messages that arrived"},
    {"messages_late", "late messages"},
    {"messages_lost", "lost messages"},
    {"staleness", "staleness"},
    {"nodes_up", "nodes up"},
    {"federated_loss", "held-out loss"},
    {"federated_accuracy", "held-out accuracy"},
}};

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// Who says a custom trainer's metric: the training, the evaluation, that of clients on their
// held-out rows.
enum class Source { kEval, kHeldOut, kTrain };

struct SourceInfo {
  std::string_view key;    // an object of numbers by name
  std::string_view title;  // for people
};

inline constexpr std::array<SourceInfo, 3> kSources = {
    {{"eval_metrics", "eval"}, {"federated_metrics", "held-out"}, {"train_metrics", "train"}}};

struct MetricKey {
  std::string name;
  Source source = Source::kEval;
  friend auto operator<=>(const MetricKey&, const MetricKey&) = default;
  std::string title() const;  // "held-out mae"
};

struct Evaluation {
  Evaluation() { values.fill(kNotMeasured); }
  double at(Measure measure) const { return values[static_cast<std::size_t>(measure)]; }
  double& at(Measure measure) { return values[static_cast<std::size_t>(measure)]; }
  double at(const MetricKey& metric) const;

  std::array<double, kMeasures.size()> values;  // kNotMeasured or finite
  std::map<MetricKey, double> metrics;          // finite
};

struct TopologyFacts {
  std::string name;
  std::optional<double> nodes, edges, degree_min, degree_mean, degree_max, diameter, slem,
      spectral_gap, rounds_to_consensus, period;
  std::optional<bool> directed, time_varying, connected;
};

enum class RunKind { kGossip, kFederated };

struct Run {
  RunKind kind = RunKind::kGossip;
  std::string name;                      // of the directory, or of the federated run's job
  std::filesystem::path directory = {};  // empty where it was not read from one
  std::string program = {};              // "starling-gossip simulate 0.1.0"
  std::string version = {};              // "0.1.0"; empty: not recorded
  std::vector<std::pair<std::string, std::string>> settings = {};  // in the file's order
  // As the command of a simulated federated run had them, before some were resolved for the run.
  std::vector<std::pair<std::string, std::string>> asked = {};
  // (key, SHA-256) of the files that the settings name, as they were; of older runs none.
  std::vector<std::pair<std::string, std::string>> inputs = {};
  std::vector<Evaluation> evaluations = {};  // steps never descend

  std::string algorithm = {};
  std::optional<double> seed, nodes, steps, parameters = {};
  // Totals of the whole run, which may go on after the last evaluation.
  std::optional<double> virtual_seconds, wall_seconds, bytes_sent, messages,
      node_steps_per_second = {};
  std::optional<TopologyFacts> topology = {};
  std::string trace_sha256 = {};
  bool real_time = false;       // of launched processes: "virtual" seconds are real
  bool unfinished = false;      // it was stopped, or is still at work
  bool has_checkpoint = false;  // of an unfinished run: it goes on from there
  bool failed = false;          // it ended by an error
  std::string failure = {};     // which; "" where it is not known
  std::string incomplete = {};  // whose last model the result of launched processes lacks
  // Of a federated run.
  std::string state = {};          // "completed"
  std::string stopped_early = {};  // why; empty: it did not
  struct BestRound {
    double round = 0;
    std::string metric;  // that makes it the best
    double value = 0;
  };
  std::optional<BestRound> best = {};

  std::string topology_svg = {};  // the text of topology.svg; may be empty

  // One measure of every evaluation.
  std::vector<double> column(Measure measure) const;
  std::vector<double> column(const MetricKey& metric) const;
  // Of at least one evaluation, in order.
  std::vector<MetricKey> metrics() const;
  bool has(Measure measure) const;  // of at least one evaluation
  // The last evaluation that has it.
  std::optional<double> last(Measure measure) const;
  // The setting whose key is `key` or ends with ".key".
  std::optional<std::string> setting(std::string_view key) const;
  // What the user decided, by which runs are told apart.
  const std::vector<std::pair<std::string, std::string>>& told() const {
    return asked.empty() ? settings : asked;
  }
  // The steps between two mixings.
  double local_steps() const;
};

// A run of a study that a page does not show, and why.
struct LeftOut {
  std::string name;    // of its directory
  std::string reason;  // "has not finished", "failed: the run diverged"
};
inline constexpr const char* kNotBegun = "has not begun";  // a reason, of runs that are counted

}  // namespace starling::report

// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/run_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/nearest_name.h"

namespace starling::gossip {
namespace {

// Beyond, the oldest evaluation does without those that are behind: each holds a model a node.
constexpr std::size_t kWaitingMax = 4;
constexpr std::size_t kNamedMax = 5;

std::span<const float> as_floats(const SharedBytes& bytes) {
  return {reinterpret_cast<const float*>(bytes.view().data()), bytes.size() / sizeof(float)};
}

double distance(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

}  // namespace

RunRecorder::RunRecorder(const Experiment& experiment, ComputePool& pool, Options options,
                         std::vector<std::string> names, TimePoint now)
    : experiment_(experiment),
      options_(options),
      measurer_(experiment, pool),
      started_(now),
      progressed_(now),
      nodes_(experiment.nodes()) {
  STARLING_CHECK(names.size() == nodes_.size());
  for (std::string& name : names) rows_.push_back({.name = std::move(name), .state = "down"});
  HandIns everybody;
  for (Node node = 0; node < experiment.nodes(); ++node) {
    everybody[node] = {};
    initial_.push_back(experiment.initial_of(node));
  }
  measurements_.push_back(measure(0, everybody, now));
}

// --- what happens -------------------------------------------------------------------------------

void RunRecorder::set_state(Node node, const std::string& state, TimePoint now) {
  if (rows_[node].state == state) return;
  rows_[node].state = state;
  progressed_ = now;
}

void RunRecorder::started(Node node, TimePoint now) {
  if (!any_started_) started_ = now;  // the initial evaluation is not part of the run's time
  any_started_ = true;
  NodeRecord& record = nodes_[node];
  record.process = NodeRecord::Process::kUp;
  record.before = record.done;
  record.heard.reset();
  record.silent = false;
  set_state(node, "starting", now);
}

void RunRecorder::paused(Node node, TimePoint now) {
  nodes_[node].process = NodeRecord::Process::kPaused;
  set_state(node, "paused", now);
}

void RunRecorder::resumed(Node node, TimePoint now) {
  nodes_[node].process = NodeRecord::Process::kUp;
  nodes_[node].heard.reset();
  set_state(node, "resumed", now);
}

void RunRecorder::stopped(Node node, TimePoint now) {
  nodes_[node].process = NodeRecord::Process::kDown;
  set_state(node, "down", now);
}

void RunRecorder::reported(Node node, const protocol::PeerReport& report, TimePoint now) {
  NodeRecord& record = nodes_[node];
  PeerRow& row = rows_[node];
  // What was under way when the process ended says nothing of the next one.
  if (record.process == NodeRecord::Process::kDown) return;
  record.done.loss_steps += report.loss_steps;
  record.done.loss_sum += report.loss * static_cast<double>(report.loss_steps);
  record.done.messages = record.before.messages + report.messages;
  record.done.bytes_sent = record.before.bytes_sent + report.bytes_sent;
  record.done.bytes_received = record.before.bytes_received + report.bytes_received;
  record.done.arrived = record.before.arrived + report.arrived;
  record.done.late = record.before.late + report.late;
  record.done.lost = record.before.lost + report.lost;
  record.done.staleness = record.before.staleness + report.staleness;
  if (report.step != row.step) progressed_ = std::max(progressed_, now);
  row.step = report.step;
  row.neighbours = report.neighbours;
  row.expected = report.expected;
  if (report.loss_steps > 0) row.loss = report.loss;
  row.bytes_sent = record.done.bytes_sent;
  row.bytes_received = record.done.bytes_received;
  if (record.process != NodeRecord::Process::kUp) return;
  record.heard = now;
  // That it reports again is no progress of the run.
  if (std::exchange(record.silent, false)) row.state = report.state;
  set_state(node, report.state, now);
}

std::vector<Node> RunRecorder::take_silent(TimePoint now) {
  std::vector<Node> found;
  for (Node node = 0; node < nodes_.size(); ++node) {
    NodeRecord& record = nodes_[node];
    const bool reports = record.process == NodeRecord::Process::kUp && record.heard;
    if (!reports || record.silent || finished(node) || now < *record.heard + kSilentAfter) continue;
    record.silent = true;
    rows_[node].state = "silent";
    found.push_back(node);
  }
  return found;
}

void RunRecorder::handed_in(Node node, protocol::Exchange exchange, SharedBytes values,
                            TimePoint now) {
  STARLING_CHECK(values.size() == experiment_.parameters() * sizeof(float));
  progressed_ = std::max(progressed_, now);
  std::optional<protocol::Exchange>& last = nodes_[node].handed_in;
  last = std::max(last.value_or(0), exchange);
  if (measured_ && exchange <= *measured_) return;
  const auto [evaluation, first] = waiting_.try_emplace(exchange);
  if (first) evaluation->second.first = now;
  evaluation->second.last = std::max(evaluation->second.last, now);
  evaluation->second.models[node] = {.model = std::move(values), .done = nodes_[node].done};
}

// --- when ---------------------------------------------------------------------------------------

bool RunRecorder::is_last(protocol::Exchange exchange) const {
  return experiment_.options.schedule().after(exchange + 1) == experiment_.options.run.steps;
}

bool RunRecorder::waits_for_last() const {
  return !waiting_.empty() && is_last(waiting_.begin()->first);
}

bool RunRecorder::has_all(protocol::Exchange exchange) const {
  return std::ranges::all_of(nodes_, [this, exchange](const NodeRecord& node) {
    const bool is_away = node.process != NodeRecord::Process::kUp;
    return has(node, exchange) || (is_away && (node.gone || !is_last(exchange)));
  });
}

// The last evaluation waits for every peer that is running or will be restarted, as long as any
// peer makes progress. Earlier ones wait no longer: what other peers have finished would be lost.
TimePoint RunRecorder::deadline_of(protocol::Exchange exchange,
                                   const Evaluation& evaluation) const {
  const TimePoint patience_ends = progressed_ + options_.patience;
  if (is_last(exchange)) return patience_ends;
  return std::min(patience_ends, evaluation.first + options_.hand_in_deadline);
}

std::optional<Measurement> RunRecorder::take_measurement(TimePoint now) {
  if (waiting_.empty() || complete_) return std::nullopt;
  const auto& [exchange, evaluation] = *waiting_.begin();
  const bool due = has_all(exchange) || now >= deadline_of(exchange, evaluation) ||
                   (waiting_.size() > kWaitingMax && !is_last(exchange));
  if (!due) return std::nullopt;
  complete_ = is_last(exchange);
  measured_ = exchange;
  // Times never go back: a later evaluation may have been complete before this one.
  measured_at_ = std::max(measured_at_, evaluation.last);
  measurements_.push_back(
      measure(experiment_.options.schedule().after(exchange + 1), evaluation.models, measured_at_));
  waiting_.erase(waiting_.begin());
  return measurements_.back();
}

TimePoint RunRecorder::next_deadline() const {
  TimePoint next = progressed_ + options_.patience;
  if (!waiting_.empty()) {
    const auto& [exchange, evaluation] = *waiting_.begin();
    next = std::min(next, deadline_of(exchange, evaluation));
  }
  return next;
}

std::string RunRecorder::tell(const std::vector<Node>& nodes) const {
  std::string who;
  for (std::size_t i = 0; i < std::min(nodes.size(), kNamedMax); ++i) {
    const PeerRow& row = rows_[nodes[i]];
    who += fmt::format("{}{} is {} at step {}", i == 0 ? "" : ", ", row.name, printable(row.state),
                       row.step);
  }
  if (nodes.size() > kNamedMax) who += fmt::format(", and {} more", nodes.size() - kNamedMax);
  return who;
}

std::optional<Error> RunRecorder::unfinished() const {
  STARLING_CHECK(complete_);
  std::vector<Node> missing;
  for (Node node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].gone && !has(nodes_[node], *measured_)) missing.push_back(node);
  }
  if (missing.empty()) return std::nullopt;
  return rejected("unfinished",
                  fmt::format("{} of {} peers did not finish, and the result is without them: {}",
                              missing.size(), nodes_.size(), tell(missing)));
}

std::optional<Error> RunRecorder::stalled(TimePoint now) const {
  if (complete_ || waits_for_last() || now < progressed_ + options_.patience) return std::nullopt;
  std::vector<Node> late;
  for (Node node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].process == NodeRecord::Process::kUp && !finished(node)) late.push_back(node);
  }
  std::string who = tell(late);
  if (late.empty()) {
    const bool is_paused = std::ranges::any_of(
        nodes_, [](const NodeRecord& n) { return n.process == NodeRecord::Process::kPaused; });
    who = is_paused ? "all that run are paused" : "no process runs";
  }
  return rejected("no-progress", fmt::format("no peer got on for {}: {}",
                                             format_duration(options_.patience), who));
}

std::uint64_t RunRecorder::step() const {
  return std::ranges::max_element(rows_, {}, &PeerRow::step)->step;
}

// --- measuring ----------------------------------------------------------------------------------

Totals RunRecorder::totals(std::uint64_t step, TimePoint now) const {
  Totals totals{.step = step, .virtual_seconds = to_seconds(now - started_)};
  for (const NodeRecord& node : nodes_) {
    const Work& done = node.measured.done;
    totals.node_steps += done.loss_steps;
    totals.loss_sum += done.loss_sum;
    totals.traffic.messages += done.messages;
    totals.traffic.bytes_sent += done.bytes_sent;
    totals.traffic.arrived += done.arrived;
    totals.traffic.late += done.late;
    totals.traffic.lost += done.lost;
    totals.traffic.staleness += done.staleness;
  }
  return totals;
}

std::span<const float> RunRecorder::model_of(Node node) const {
  const SharedBytes& model = nodes_[node].measured.model;
  return model.empty() ? std::span<const float>(initial_[node]) : as_floats(model);
}

Measurement RunRecorder::measure(std::uint64_t step, const HandIns& models, TimePoint now) {
  for (const auto& [node, hand_in] : models) nodes_[node].measured = hand_in;
  last_totals_ = totals(step, now);
  NetworkState state{.totals = last_totals_, .models = {}, .present = {}};
  for (Node node = 0; node < nodes_.size(); ++node) {
    state.models.push_back(model_of(node));
    state.present.push_back(models.contains(node));
  }
  Measurement measurement = measurer_.measure(state);
  measurement.wall_seconds = measurement.virtual_seconds;
  measurement.set_traffic(last_totals_.traffic);
  // Peers of asynchronous algorithms do not know each other's steps.
  if (experiment_.plan.traits.pattern == Pattern::kPairs) measurement.staleness.reset();
  const std::span<const float> mean = measurer_.mean_model().values();
  for (Node node = 0; node < nodes_.size(); ++node) {
    rows_[node].distance.reset();
    if (state.present[node]) rows_[node].distance = distance(state.models[node], mean);
  }
  return measurement;
}

SimulationResult RunRecorder::result(TimePoint now) && {
  STARLING_CHECK(complete_);
  const double seconds = to_seconds(now - started_);
  const Sha256Digest models = measurer_.models_digest();
  model::Parameters mean = measurer_.mean_model();
  std::vector<bool> present = measurer_.present();
  const auto lacking = unfinished();
  std::string incomplete = lacking ? lacking->message() : "";
  return {.measurements = std::move(measurements_),
          .mean_model = std::move(mean),
          .totals = last_totals_,
          .wall_seconds = seconds,
          .stepping_seconds = last_totals_.virtual_seconds,
          .trace = measurer_.trace(),
          .models = models,
          .present = std::move(present),
          .incomplete = std::move(incomplete)};
}

}  // namespace starling::gossip

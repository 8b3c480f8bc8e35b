// SPDX-License-Identifier: Apache-2.0
// What peers report and hand in, gathered into the measurements of a run: when an evaluation has
// all it waits for, when the run is over, and who it is that does not get on. A machine: it is told
// events and the time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/shared_bytes.h"
#include "core/protocol/peer_messages.h"
#include "gossip/launch/peer_table.h"
#include "gossip/simulation/simulation.h"

namespace starling::gossip {

class RunRecorder {
 public:
  struct Options {
    // From the first model of an evaluation: those that have come until then are measured.
    Duration hand_in_deadline = std::chrono::seconds(20);
    // Without a step or a change of anybody's state, or at the end with somebody missing.
    Duration patience = std::chrono::minutes(2);
  };
  // A running process that reports nothing for so long is frozen, or its machine too busy: it
  // reports once a second.
  static constexpr Duration kSilentAfter = std::chrono::seconds(10);

  // Both references must outlive it. Measures the initial models at once. Names are those of
  // the nodes, in order. Times are counted from the first start of a process.
  RunRecorder(const Experiment& experiment, ComputePool& pool, Options options,
              std::vector<std::string> names, TimePoint now);

  // A process has begun, is paused, goes on, has ended.
  void started(Node node, TimePoint now);
  void paused(Node node, TimePoint now);
  void resumed(Node node, TimePoint now);
  void stopped(Node node, TimePoint now);
  // It is down or paused, and stays so: nothing waits for it.
  void left(Node node) { nodes_[node].gone = true; }
  // Its counters begin anew when a process does.
  void reported(Node node, const protocol::PeerReport& report, TimePoint now);
  // `values`: little-endian floats, as many as the model has. What is too late is passed over.
  void handed_in(Node node, protocol::Exchange exchange, SharedBytes values, TimePoint now);

  // Those of which nothing has been heard for kSilentAfter: once each, until they report again.
  std::vector<Node> take_silent(TimePoint now);

  // The next measurement that has all it waits for, in the order of the exchanges. Its time is that
  // of the last model that it has, however late it is taken.
  std::optional<Measurement> take_measurement(TimePoint now);
  // When take_measurement() or stalled() may say something new though nothing else happens.
  TimePoint next_deadline() const;
  bool complete() const { return complete_; }  // the last has been taken
  // "no-progress": says who does not get on and in which state, where nobody has for `patience`.
  std::optional<Error> stalled(TimePoint now) const;

  const std::vector<Measurement>& measurements() const { return measurements_; }
  std::uint64_t step() const;  // of the node that is furthest
  const std::vector<PeerRow>& rows() const { return rows_; }
  bool finished(Node node) const { return rows_[node].state == "finished"; }
  // Requires: complete().
  SimulationResult result(TimePoint now) &&;
  // "unfinished": says of which nodes, beside those that left, the last measurement has no model.
  // Requires: complete().
  std::optional<Error> unfinished() const;

 private:
  // Of a node, in all its processes.
  struct Work {
    std::uint64_t loss_steps = 0;
    double loss_sum = 0;
    std::uint64_t messages = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t arrived = 0;
    std::uint64_t late = 0;
    std::uint64_t lost = 0;
    std::uint64_t staleness = 0;
  };
  // Its report comes just before a model, and the launcher may get to read both much later: what
  // was done when it handed the model in goes with the model.
  struct HandIn {
    SharedBytes model;
    Work done;
  };
  struct NodeRecord {
    enum class Process { kDown, kPaused, kUp } process = Process::kDown;
    bool gone = false;               // stays down or paused
    std::optional<TimePoint> heard;  // its last report, of this process
    bool silent = false;
    Work before;                                  // of processes that have ended
    Work done;                                    // so far
    std::optional<protocol::Exchange> handed_in;  // the last
    HandIn measured;                              // the last; an empty model: the initial one
  };
  using HandIns = std::map<Node, HandIn>;
  struct Evaluation {
    TimePoint first = TimePoint::min();  // when its first and its last model came
    TimePoint last = TimePoint::min();
    HandIns models;
  };

  bool has(const NodeRecord& node, protocol::Exchange exchange) const {
    return node.handed_in && *node.handed_in >= exchange;
  }
  std::string tell(const std::vector<Node>& nodes) const;
  void set_state(Node node, const std::string& state, TimePoint now);
  bool is_last(protocol::Exchange exchange) const;
  bool waits_for_last() const;
  bool has_all(protocol::Exchange exchange) const;
  TimePoint deadline_of(protocol::Exchange exchange, const Evaluation& evaluation) const;
  Totals totals(std::uint64_t step, TimePoint now) const;
  std::span<const float> model_of(Node node) const;
  Measurement measure(std::uint64_t step, const HandIns& models, TimePoint now);

  const Experiment& experiment_;
  Options options_;
  Measurer measurer_;
  TimePoint started_;
  bool any_started_ = false;
  TimePoint measured_at_ = TimePoint::min();
  TimePoint progressed_;
  std::vector<NodeRecord> nodes_;
  std::vector<std::vector<float>> initial_;  // [nodes] models
  std::vector<PeerRow> rows_;
  std::map<protocol::Exchange, Evaluation> waiting_;
  std::optional<protocol::Exchange> measured_;  // the last
  std::vector<Measurement> measurements_;
  Totals last_totals_;
  bool complete_ = false;
};

}  // namespace starling::gossip

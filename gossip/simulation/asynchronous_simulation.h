// SPDX-License-Identifier: Apache-2.0
// Asynchronous algorithms: events in the order of virtual time. Training is computed ahead on all
// threads, since a local phase depends only on the model that it began with; its end waits for the
// result, so the order of events never depends on threads.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <variant>
#include <vector>

#include "core/sim/event_queue.h"
#include "core/sim/link_queues.h"
#include "gossip/simulation/network_simulation.h"
#include "gossip/training/node_trainings.h"
#include "gossip/training/patience.h"

namespace starling::gossip {

class AsynchronousSimulation final : public NetworkSimulation {
 public:
  AsynchronousSimulation(const Experiment& experiment, ComputePool& pool);
  ~AsynchronousSimulation() override;

  [[nodiscard]] Result<void> advance(std::uint64_t step, double until) override;
  const Totals& totals() const override { return totals_; }
  bool present(Node node) const override { return nodes_[node].present; }
  std::span<const float> model(Node node) const override { return nodes_[node].algorithm->model(); }
  void trace(Sha256& hash) const override;
  bool archive(Archive& state) override;

 private:
  // A local phase: what it began with, and where it ended as soon as some thread has computed it.
  struct Phase {
    std::vector<float> base;
    std::vector<float> trained;  // afterwards the update
    int steps = 1;
    double rate = 0;
    Result<double> loss_sum = 0.0;
    std::promise<void> promise;
    std::future<void> done = promise.get_future();
  };
  struct NodeState {
    std::unique_ptr<AsyncAlgorithm<float>> algorithm;
    Rng rng;  // whom it talks to
    std::shared_ptr<Phase> phase;
    std::uint64_t steps = 0;
    std::uint64_t sent = 0;   // messages, also their number
    std::uint64_t waits = 0;  // for replies; an old timeout is told by it
    double work = 0;          // seconds of the last local phase
    double asked = 0;         // when it last began to wait for a reply
    Patience patience;
    double uplink_free = 0;
    double downlink_free = 0;
    std::size_t queued = 0;  // messages at its link that are not through with it
    bool present = false;
  };
  using SharedMessage = std::shared_ptr<const AsyncMessage<float>>;
  struct PhaseEnded {
    Node node = 0;
    std::shared_ptr<Phase> phase = nullptr;
  };
  // A message is at the receiver's link, and then through it.
  struct Reached {
    Node from = 0;
    Node to = 0;
    SharedMessage message = nullptr;
    std::uint64_t receiver_steps = 0;  // when it was sent
    double slower = 0;  // seconds more than the sender's link that the receiver's takes
  };
  struct Arrived {
    Node from = 0;
    Node to = 0;
    SharedMessage message = nullptr;
    std::uint64_t receiver_steps = 0;
  };
  struct TimedOut {
    Node node = 0;
    std::uint64_t wait = 0;
  };
  struct Appeared {
    Node node = 0;
  };
  struct Went {
    Node node = 0;
  };
  using Event = std::variant<PhaseEnded, Reached, Arrived, TimedOut, Appeared, Went>;

  // No thread computes a phase any more.
  void wait_for_phases();
  bool archive_node(Archive& state, NodeState& node);
  void archive_events(Archive& state);
  void archive_event(Archive& state, Event& event, std::span<const SharedMessage> messages);
  static Event blank_event(std::size_t kind);
  static std::shared_ptr<Phase> ended_phase();
  double now() const;
  void schedule(double time, Event event);
  [[nodiscard]] Result<void> happen(const PhaseEnded& event);
  [[nodiscard]] Result<void> happen(const Reached& event);
  [[nodiscard]] Result<void> happen(const Arrived& event);
  [[nodiscard]] Result<void> happen(const TimedOut& event);
  [[nodiscard]] Result<void> happen(const Appeared& event);
  [[nodiscard]] Result<void> happen(const Went& event);
  // The node is there from now on.
  void begin(Node node);
  // Begins the node's next local phase unless it is away or at work.
  void go_on(Node node);
  void transmit(Node from, const std::vector<AsyncSend<float>>& sends);
  // The edges of now: the topology's step advances as the mean node does.
  Links links(Node node);
  // Those of them that can take a message: none while the node's own link is busy, no receiver
  // that is away or behind a link that is busy, and none at whose link as many messages wait as it
  // has senders. So no queue grows beyond that, and what is not sent now is part of what is sent
  // next.
  Links open_links(Node node);
  std::optional<Node> donor(Node node);

  const Experiment& experiment_;
  ComputePool& pool_;
  std::unique_ptr<NodeTrainings> trainings_;
  std::atomic<bool> ending_ = false;  // no phase is of use any more
  std::vector<NodeState> nodes_;
  sim::EventQueue<Event> queue_;
  sim::LinkQueues queues_;
  std::shared_ptr<const topologies::MixingMatrix> matrix_;
  std::uint64_t matrix_step_ = 0;
  std::vector<topologies::Weight> open_receivers_;  // of the last open_links()
  std::uint64_t phases_ = 0;
  std::uint64_t interrupted_ = 0;  // phases, since one was finished
  Totals totals_;
};

}  // namespace starling::gossip

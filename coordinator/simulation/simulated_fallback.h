// SPDX-License-Identifier: Apache-2.0
// The clients of a simulated federation while the coordinator is away: the devices' own machine for
// each, and D-PSGD among those that gossip, in virtual time. They exchange in step: an exchange
// takes as long as the slowest of them trains, sends and is heard.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/job/simulated_world.h"
#include "coordinator/rounds/run_context.h"
#include "core/base/compute_pool.h"
#include "core/client/client_machine.h"
#include "core/client/trainer.h"
#include "core/sim/virtual_scheduler.h"
#include "gossip/algorithms/make_algorithm.h"
#include "gossip/fallback/fallback_machine.h"
#include "gossip/training/builtin_trainings.h"
#include "topologies/topology.h"

namespace starling::coordinator {

class SimulatedFallback {
 public:
  // All of it must outlive the fallback.
  struct World {
    sim::VirtualScheduler& scheduler;
    ComputePool& pool;
    const SimulatedWorld& world;
    std::function<void(const Error&)> fail;
  };
  struct Member {
    std::string name;
    data::DatasetView rows;
  };

  // Requires: a job with a fallback. "topology-impossible" and the like for this many members.
  [[nodiscard]] static Result<std::unique_ptr<SimulatedFallback>> make(World world,
                                                                       const RunContext& context,
                                                                       RunId run,
                                                                       std::vector<Member> members);
  SimulatedFallback(const SimulatedFallback&) = delete;
  SimulatedFallback& operator=(const SimulatedFallback&) = delete;

  // Of a member's process and its link.
  void see(std::size_t member, const protocol::Message& message);
  void lost(std::size_t member);
  void died(std::size_t member);  // what it had gained is gone
  // What contributes in place of a training, or null.
  std::shared_ptr<client::Trainer> take_training(std::size_t member, const client::Train& train);

 private:
  struct Node {
    Node(std::uint32_t at, gossip::NodeData its_data, double its_rows, TimePoint now)
        : place(at), data(std::move(its_data)), rows(its_rows), machine(now) {}
    std::uint32_t place;  // in the topology: the order of the roster
    gossip::NodeData data;
    double rows;
    gossip::FallbackMachine machine;
    std::unique_ptr<gossip::Algorithm<float>> algorithm;  // null: does not gossip
    bool takes_part = false;                              // in the exchange under way
    gossip::FallbackPace pace;                            // while it gossips
    gossip::fallback::Trained gained;
    double loss_sum = 0;
    std::shared_ptr<client::Trainer> merging;
    std::uint64_t steps = 0;  // ever
  };

  SimulatedFallback(World world, const RunContext& context, gossip::FallbackTerms terms);
  void on(std::size_t member, gossip::fallback::Event event);
  void perform(std::size_t member, const gossip::fallback::Action& action);
  void begin(Node& node, const gossip::fallback::Begin& begin);
  std::optional<gossip::fallback::Trained> pause(Node& node);
  void begin_exchange();
  void exchange();
  std::optional<TimePoint> due(const Node& node) const;
  double exchange_seconds(const std::vector<std::size_t>& taking_part) const;
  void train(const std::vector<std::size_t>& members);
  void mix(const std::vector<std::size_t>& members);
  gossip::Links links(const Node& node) const;

  World world_;
  gossip::FallbackTerms terms_;
  train::TrainOptions training_;      // by gossip
  train::TrainOptions job_training_;  // in a round
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<const topologies::Topology> topology_;
  gossip::Plan plan_;
  std::vector<train::Stepper> steppers_;                    // one a worker
  std::vector<Node> nodes_;                                 // [member]
  std::vector<std::size_t> member_at_;                      // [place]
  std::shared_ptr<const topologies::MixingMatrix> matrix_;  // of the exchange under way
  std::uint64_t exchanges_ = 0;
  bool exchanging_ = false;
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// Synchronous algorithms: all nodes do the same step, computed node by node and then column by
// column on all threads. Virtual time is a recurrence beside it (step_clock.h).
#pragma once

#include <memory>
#include <vector>

#include "core/linalg/aligned.h"
#include "gossip/simulation/attack.h"
#include "gossip/simulation/network_simulation.h"
#include "gossip/simulation/step_clock.h"
#include "gossip/training/node_trainings.h"

namespace starling::gossip {

class SynchronousSimulation final : public NetworkSimulation {
 public:
  SynchronousSimulation(const Experiment& experiment, ComputePool& pool);

  [[nodiscard]] Result<void> advance(std::uint64_t step, double until) override;
  const Totals& totals() const override { return totals_; }
  bool present(Node node) const override { return clock_.present(node) && !attack_.is_liar(node); }
  std::span<const float> model(Node node) const override { return algorithms_[node]->model(); }
  void trace(Sha256& hash) const override;
  bool archive(Archive& state) override;

 private:
  [[nodiscard]] Result<void> exchange(int steps);
  void welcome_returning(const topologies::MixingMatrix* matrix);
  void draw_groups();
  [[nodiscard]] Result<void> adapt(const topologies::MixingMatrix* matrix, int steps);
  void mix_neighbours(const topologies::MixingMatrix& matrix);
  void forge();
  void mix_mean();
  void mix_groups();
  Links links(const topologies::MixingMatrix* matrix, Node node) const;
  // Calls body(node, thread) for every node that is there, `part` nodes a job.
  template <class Body>
  void for_each_present(std::size_t part, const Body& body);
  // absorb() and conclude() of every node that is there; inbox(node) is what came.
  template <class Inbox>
  void absorb(const topologies::MixingMatrix* matrix, const Inbox& inbox);

  // A message that comes after its receiver has gone on, copied while its sender still shows it.
  struct LateMessage {
    LateMessage(Node sender, std::uint64_t number, const Message<float>& message);
    LateMessage(LateMessage&&) = default;
    LateMessage& operator=(LateMessage&&) = default;

    Node from;
    std::uint64_t exchange;
    std::vector<float> first;
    std::vector<float> second;
    std::vector<std::byte> packed;
    Message<float> view;  // of these, whose elements stay where they are when it is moved
  };
  void archive_late(Archive& state, Node node);
  const Message<float>& message(const topologies::MixingMatrix& matrix, Node from, Node to) const;
  const Message<float>* heard(const topologies::MixingMatrix& matrix, Node node, Node from,
                              std::uint64_t entry) const;

  const Experiment& experiment_;
  ComputePool& pool_;
  std::unique_ptr<NodeTrainings> trainings_;
  std::vector<std::unique_ptr<Algorithm<float>>> algorithms_;
  StepClock clock_;
  Attack attack_;
  std::vector<std::vector<LateMessage>> late_;  // [nodes] of the receivers
  std::vector<Node> absent_;                    // in this exchange, ascending
  Totals totals_;
  std::uint64_t exchanges_ = 0;
  std::uint64_t in_vain_ = 0;  // steps that nobody has done, since the last that somebody has
  std::vector<Result<double>> losses_;  // [nodes] of the last local phase
  std::vector<std::uint64_t> bytes_;    // [nodes] of a message
  std::vector<std::uint64_t> inbox_begin_;
  std::vector<Received<float>> inboxes_;  // as the matrix's entries
  // Nodes that average together in this exchange; none unless the algorithm averages in groups.
  std::vector<std::vector<Node>> groups_;
  std::vector<std::size_t> group_of_;                      // [nodes] in groups_
  std::vector<linalg::AlignedVector<float>> group_means_;  // as groups_
  linalg::AlignedVector<float> mean_first_;
  linalg::AlignedVector<float> mean_second_;
};

}  // namespace starling::gossip

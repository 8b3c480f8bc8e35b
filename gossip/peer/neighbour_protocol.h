// SPDX-License-Identifier: Apache-2.0
// A synchronous algorithm among neighbours: the exchange machine decides, this performs it with the
// very objects that the simulation drives, so that without faults both give the same bits.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "gossip/peer/exchange_machine.h"
#include "gossip/peer/far_neighbours.h"
#include "gossip/peer/protocol_base.h"
#include "gossip/peer/repeated_fault.h"
#include "gossip/peer/usual_distance.h"

namespace starling::gossip {

class NeighbourProtocol final : public ProtocolBase {
 public:
  // All references must outlive the protocol. Requires: run.topology.
  NeighbourProtocol(const NetworkRun& run, LocalSteps& local, ProtocolHost& host,
                    ProtocolPlace place, const ExchangeOptions& options, ProtocolStart start);

  void begin() override;
  std::vector<Member> neighbours() const override;
  TrainingProgress progress() const override;
  bool is_finished() const override;
  std::optional<std::span<const float>> model() const override;
  Bytes state() const override { return save_state(*algorithm_); }
  std::optional<Handover> hand_over() override;
  protocol::Support support() const override { return machine_.support(host_.now()); }
  Result<void> check(Member from, const protocol::VectorTransfer& transfer) const override;
  void take_unused(Member from, const protocol::VectorTransfer& transfer) override;
  void take(Member from, TransferFlow::Whole whole) override;
  void take_ask(Member from, const protocol::MixAsk& ask) override;
  void take_answer(Member from, const protocol::MixAnswer& answer) override;
  void take_hello(Member from, const protocol::PeerHello& hello) override;
  void link_lost(Member member) override;
  void reach(Member member, bool reachable) override;
  void copied(Progress progress, std::size_t givers, std::span<const float> model) override;
  void not_copied() override;
  void tick() override;
  std::optional<TimePoint> next_deadline() const override;

  const Algorithm<float>& algorithm() const { return *algorithm_; }  // for invariants

 private:
  struct Packed {
    protocol::MixMessage message;
    SharedBytes data;
    protocol::Support support = {};  // as it was sent
  };

  void on(exchange::Event event);
  void perform(exchange::Train& train);
  void perform(exchange::Announce& announce);
  void perform(exchange::Ask& ask);
  void perform(exchange::Answer& answer);
  void perform(exchange::Mix& mix);
  void perform(exchange::Copy& copy);
  void perform(exchange::Say& say);
  void perform(exchange::Finish&);
  void regroup();
  void remake(std::span<const float> model);
  void trained(double loss_sum, const LocalPhase& phase);
  void mixed();
  void look();
  void forget_sent();
  void find_away();
  Links links() const;
  const Packed& packed(std::size_t place);
  void introduce(Member to);
  bool introduces(Member from, const protocol::Incarnations& edge) const;
  bool may_send(Member from, Exchange exchange) const;
  void take_postponed();
  bool agree_on_edge(Member from, const protocol::Incarnations& edge);
  void send(Member to, const Packed& packed);
  protocol::Incarnations edge_to(Member to) const;
  std::optional<Message<float>> read(Member from, const exchange::Arrival& arrival) const;
  bool is_usual(Member from, const Message<float>& message);
  void leave_out(Member from, const std::string& why);
  void name_far();

  const std::set<Member> absent_;
  const bool continues_;  // with the algorithm of the epoch before
  const bool trained_;    // before it begins
  std::uint32_t incarnation_;
  std::uint64_t resent_;  // exchanges whose messages are kept to be sent again, and
  std::size_t kept_max_;  // how many of one neighbour's
  ExchangeMachine machine_;
  std::unique_ptr<Algorithm<float>> algorithm_;  // the compute thread's, while it computes
  const bool tags_edges_;                        // it counts mass on edges
  std::vector<exchange::Action> to_do_;
  bool performing_ = false;
  bool fresh_ = false;                         // a mixed model that the host has not looked at
  std::map<std::size_t, Packed> packed_;       // of this exchange, by place
  std::map<Member, std::deque<Packed>> sent_;  // to each, what it may still lack
  std::vector<Member> away_;                   // receivers, when this exchange began; ascending
  std::vector<exchange::Arrival> arrivals_;    // being mixed
  std::vector<Message<float>> messages_;
  std::vector<Received<float>> inbox_;
  UsualDistance usual_first_;  // of messages' vectors from our own
  UsualDistance usual_second_;
  FarNeighbours far_;       // under a robust rule, which takes the place of what is usual
  RepeatedFault left_out_;  // messages that cannot be read, or are far beyond the usual
  bool unsettled_ = false;  // one of these began or ended in the exchange that is being mixed
  std::map<Member, std::uint32_t> incarnations_;     // of the other ends
  std::map<Member, TransferFlow::Whole> postponed_;  // of other incarnations, until it is computed
};

}  // namespace starling::gossip

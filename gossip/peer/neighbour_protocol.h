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
  // `run` and `local` must outlive the protocol. Requires: run.topology.
  NeighbourProtocol(const NetworkRun& run, LocalSteps& local, ProtocolPlace place,
                    const ExchangeOptions& options, ProtocolStart start, TimePoint now);

  std::optional<TimePoint> next_deadline() const override { return machine_.next_deadline(); }
  std::vector<Member> neighbours() const override;
  TrainingProgress progress() const override;
  bool is_finished() const override;
  std::optional<std::span<const float>> model() const override;
  Bytes state() const override { return save_state(*algorithm_); }
  std::optional<Handover> hand_over() override;
  protocol::Support support(TimePoint now) const override { return machine_.support(now); }
  Result<void> check(Member from, const protocol::VectorTransfer& transfer) const override;

  const Algorithm<float>& algorithm() const { return *algorithm_; }  // for invariants

 private:
  struct Packed {
    protocol::MixMessage message;
    SharedBytes data;
    protocol::Support support = {};  // as it was sent
  };

  void dispatch(training::Event& event) override {
    std::visit([this](auto& happened) { handle(happened); }, event);
  }
  using ProtocolBase::handle;
  void handle(const training::Begin&);
  void handle(const peer::LinkUp& up);
  void handle(const peer::LinkDown& down) { tell_machine(exchange::LinkDown{down.member}); }
  void handle(const peer::MessageReceived& came);
  void handle(peer::TransferReceived& came);
  void handle(const peer::TransferRefused& refused);
  void handle(const training::Reach& reach) {
    tell_machine(exchange::Reach{reach.member, reach.reachable});
  }
  void handle(const training::Copied& copied);
  void handle(const training::NotCopied&) { tell_machine(exchange::Copied{std::nullopt}); }
  void handle(const training::Continue&);
  void handle(const peer::Tick&) { tell_machine(exchange::Tick{}); }

  void tell_machine(exchange::Event event);
  void perform(exchange::Train& train);
  void perform(exchange::Announce& announce);
  void perform(exchange::Ask& ask);
  void perform(exchange::Answer& answer);
  void perform(exchange::Mix& mix);
  void perform(exchange::Copy& copy);
  void perform(exchange::Say& said) { say(said.level, std::move(said.line)); }
  void perform(exchange::Finish&);
  void regroup();
  void remake(std::span<const float> model);
  void trained(double loss_sum, const LocalPhase& phase);
  void mixed();
  void begin_phase();
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
  bool is_mixed_ = false;                        // and the model has not been looked at
  std::optional<exchange::Train> next_;          // local phase, which waits for that
  std::map<std::size_t, Packed> packed_;         // of this exchange, by place
  std::map<Member, std::deque<Packed>> sent_;    // to each, what it may still lack
  std::vector<Member> away_;                     // receivers, when this exchange began; ascending
  std::vector<exchange::Arrival> arrivals_;      // being mixed
  std::vector<Message<float>> messages_;
  std::vector<Received<float>> inbox_;
  UsualDistance usual_first_;  // of messages' vectors from our own
  UsualDistance usual_second_;
  FarNeighbours far_;       // under a robust rule, which takes the place of what is usual
  RepeatedFault left_out_;  // messages that cannot be read, or are far beyond the usual
  bool unsettled_ = false;  // one of these began or ended in the exchange that is being mixed
  std::map<Member, std::uint32_t> incarnations_;        // of the other ends
  std::map<Member, peer::TransferReceived> postponed_;  // of others, until it is computed
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// An asynchronous algorithm among neighbours (ad-psgd, push-sum): a peer trains without waiting for
// anybody, and talks to those who are there when a local phase ends. What comes meanwhile changes
// the model at once; the phase works on a copy.
#pragma once

#include <map>
#include <set>

#include "core/base/rng.h"
#include "gossip/peer/protocol_base.h"
#include "gossip/peer/repeated_fault.h"
#include "gossip/peer/unconfirmed_pushes.h"
#include "gossip/peer/usual_distance.h"
#include "gossip/progress/jump_bound.h"
#include "gossip/progress/quorum.h"
#include "gossip/training/patience.h"
#include "gossip/training/traffic.h"

namespace starling::gossip {

// Who is done goes on mixing, without training, at its own pace (once a second where its process
// has been started again since), as long as a neighbour trains: as long as one says that it did
// another local phase, and some time after the last one. Then its model changes no more, whatever
// comes. A message bears the incarnations of its sender and, as far as the sender knows it, of its
// receiver: what was meant for a former process is not taken, and nothing is sent before a
// neighbour's incarnation is known, so that no mass is put on an edge whose other end counts
// differently. An empty push with the number 0 says no more than who sends, and where it is; an
// empty reply with that number, that nothing of its receiver is taken, as a quorum went on without
// it.
class AsynchronousProtocol final : public ProtocolBase {
 public:
  // `run` and `local` must outlive the protocol. Requires: run.topology, pattern kPairs.
  AsynchronousProtocol(const NetworkRun& run, LocalSteps& local, ProtocolPlace place,
                       const ProtocolPatience& patience, ProtocolStart start, TimePoint now);

  std::optional<TimePoint> next_deadline() const override;
  std::vector<Member> neighbours() const override;
  TrainingProgress progress() const override;  // `exchange`: local phases done
  bool is_finished() const override { return state_ == State::kFinished; }
  std::optional<std::span<const float>> model() const override { return algorithm_->model(); }
  Bytes state() const override { return save_state(*algorithm_); }
  protocol::Support support(TimePoint now) const override { return quorum_.support(now); }
  Result<void> check(Member from, const protocol::VectorTransfer& transfer) const override;

  const AsyncAlgorithm<float>& algorithm() const { return *algorithm_; }  // for invariants

 private:
  enum class State { kJoining, kTraining, kCopying, kFinished };
  // A local phase; the compute thread touches this and the local steps only.
  struct Phase {
    std::vector<float> base;
    std::vector<float> trained;  // afterwards the update
    TimePoint began{};
  };
  struct Neighbour {
    std::uint32_t incarnation = 0;  // 0: not known
    Exchange phases = 0;            // done
    Exchange most_phases = 0;       // the same, ever
    bool heard = false;             // over the present link: its incarnation is this one
    bool reachable = true;          // by failure detection
    bool is_back = false;           // after a suspicion, and nothing was heard of it since
    bool far_ahead = false;         // when its link came up
    UnconfirmedPushes unconfirmed;  // where the algorithm counts on edges
    protocol::Support support;      // as it said last
    TimePoint support_at{};         // when that was

    bool open() const { return heard && reachable; }
  };

  void dispatch(training::Event& event) override {
    std::visit([this](auto& happened) { handle(happened); }, event);
  }
  using ProtocolBase::handle;
  void handle(const training::Begin&);
  void handle(const peer::LinkUp& up);
  void handle(const peer::LinkDown& down);
  void handle(const peer::TransferReceived& came);
  void handle(const training::Reach& reach);
  void handle(const training::Copied& copied);
  void handle(const training::NotCopied&);
  void handle(const training::Continue&) { go_on(); }
  void handle(const peer::Tick&);

  bool has_joined() const;
  bool outranks(const Neighbour& neighbour) const;
  std::vector<Member> far_ahead() const;
  std::vector<Member> donors() const;
  bool behind() const { return state_ == State::kCopying || !donors().empty(); }
  void note_phases(Neighbour& neighbour, Exchange phases);
  bool is_over() const;
  bool somebody_trains() const;
  void begin_if_joined();
  void go_on();
  void compute_phase();
  void phase_ended(const Phase& phase, double loss_sum);
  Duration mixing_pace() const;
  void finish();
  void mix(std::span<const float> update);
  bool take(Member from, const protocol::PairMessage& pair, const SharedBytes& data);
  void receive(Member from, const protocol::PairMessage& pair, const SharedBytes& data);
  bool is_usual(Member from, const AsyncMessage<float>& message);
  std::optional<AsyncMessage<float>> read(Member from, const protocol::PairMessage& pair,
                                          const SharedBytes& data);
  void ignore(Member from, const std::string& why);
  void transmit(const std::vector<AsyncSend<float>>& sends);
  void introduce(Member to);
  void confirm(Member to, std::uint64_t number);
  void caught_up();
  bool meet(Member from, const protocol::Incarnations& edge, Exchange phases,
            const protocol::Support& support);
  bool is_of_quorum(Member from) const;
  protocol::Incarnations edge_to(Member to) const;
  void send(Member to, const protocol::VectorTransfer::Content& content, SharedBytes data);
  void give_up();
  Duration patience() const;

  const std::set<Member> absent_;
  const ProtocolPatience limits_;
  const std::uint32_t incarnation_;
  const std::vector<Member> graph_;  // its neighbours, at any step, where graphs are not drawn anew
  std::unique_ptr<AsyncAlgorithm<float>> algorithm_;
  Rng rng_;  // whom it asks
  Quorum quorum_;
  JumpBound jumps_;
  UsualDistance usual_;
  RepeatedFault left_out_;  // messages that cannot be read, or are far beyond the usual
  State state_ = State::kJoining;
  Exchange caught_up_ = 0;      // how far those were who were far ahead, when a model was taken
  Exchange phases_;             // done
  bool said_minority_ = false;  // to some neighbour, since it was none
  std::shared_ptr<const topologies::MixingMatrix> matrix_;  // of the phase that comes
  std::map<Member, Neighbour> neighbours_;
  std::map<Member, int> requests_;  // that came since the last phase ended
  Duration work_{};                 // of the last phase
  Member asked_ = 0;                // for a reply
  TimePoint asked_at_{};            // when that was
  Patience patience_;               // for replies
  Traffic traffic_;                 // replies that came late
  std::optional<TimePoint> alarm_;  // joining, finished: see tick()
  TimePoint advanced_at_{};         // here or at a neighbour, the last local phase
  std::optional<TimePoint> give_up_at_;
};

}  // namespace starling::gossip

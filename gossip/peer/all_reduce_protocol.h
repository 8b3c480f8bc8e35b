// SPDX-License-Identifier: Apache-2.0
// A synchronous algorithm over all members at once (local SGD, DiLoCo), or over a group of them
// that is drawn for each exchange: local steps, then an all-reduce among all who answer. Members
// that fall out take the others' model when they return; half of the members or fewer train on at
// the usual pace, and take the model of a majority that went on without them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gossip/collective/all_reduce_machine.h"
#include "gossip/peer/protocol_base.h"
#include "gossip/peer/usual_distance.h"
#include "gossip/progress/jump_bound.h"

namespace starling::gossip {

class AllReduceProtocol final : public ProtocolBase {
 public:
  // `run` and `local` must outlive the protocol.
  AllReduceProtocol(const NetworkRun& run, LocalSteps& local, const ProtocolPlace& place,
                    const ProtocolPatience& patience, ProtocolStart start, TimePoint now);

  std::optional<TimePoint> next_deadline() const override;
  std::vector<Member> neighbours() const override;
  TrainingProgress progress() const override;
  bool is_finished() const override { return state_ == State::kFinished; }
  std::optional<std::span<const float>> model() const override;
  std::span<const float> own_model() const override { return algorithm_->model(); }
  Bytes state() const override { return save_state(*algorithm_); }
  std::optional<Handover> hand_over() override;
  bool remembers() const override { return machine_->memory() != collective::Memory::kNone; }
  protocol::Support support(TimePoint /*now*/) const override {
    return {.minority = is_minority(), .backed = at_.backed};
  }
  Result<void> check(Member from, const protocol::VectorTransfer& transfer) const override;

 private:
  // kPacing: between two exchanges of a minority, until the next may begin.
  enum class State { kIdle, kTraining, kReducing, kMixing, kCopying, kFinished, kPacing };

  void dispatch(training::Event& event) override {
    std::visit([this](auto& happened) { handle(happened); }, event);
  }
  using ProtocolBase::handle;
  void handle(const training::Begin&);
  void handle(const peer::LinkUp& up);
  void handle(const peer::LinkDown& down);
  void handle(const peer::MessageReceived& came);
  void handle(const peer::TransferReceived& came);
  void handle(const training::Reach& reach);
  void handle(const training::Copied& copied);
  void handle(const training::NotCopied&) { not_copied(); }
  void handle(const training::Continue&);
  void handle(const peer::Tick&);

  void go_on();
  void trained(double loss_sum, const LocalPhase& phase);
  void reduce();
  bool is_minority() const { return at_.backed < at_.exchange; }
  bool in_groups() const { return run_.plan.group > 0; }
  void say_standing(const Progress& next, std::size_t members);
  void come_back(Member from, Progress theirs);
  // Whether a member of this run can be there.
  bool can_be(Progress at) const;
  void copy_model(std::vector<Member> from);
  void not_copied();
  void say_too_slow();
  std::vector<Member> donors(const std::vector<Member>& first) const;
  void keep_own(std::string why);
  void tell_machine(collective::Event event);
  void perform(collective::SendNote& send) { act(peer::Send{send.to, std::move(send.note)}); }
  void perform(collective::SendPiece& send);
  void perform(collective::Finished& finished);
  void perform(collective::CatchUp& catch_up);
  void perform(collective::Say& said) { say(said.level, std::move(said.line)); }

  const bool trained_;           // before it begins
  const Duration return_every_;  // at most
  std::unique_ptr<collective::Reducer> machine_;
  std::unique_ptr<Algorithm<float>> algorithm_;
  State state_ = State::kIdle;
  Progress at_;
  Progress next_;  // kMixing: afterwards; kCopying: with a model of theirs
  JumpBound jumps_;
  TimePoint began_{};   // the local steps
  Duration work_{};     // that they took last
  TimePoint resume_{};  // kPacing: until
  struct {
    int copies = 0;     // to be where the others are, since it ended an exchange with somebody
    TimePoint since{};  // the first of them
    Exchange from = 0;  // where the others were then
    Duration took{};    // all copies
  } behind_;
  TimePoint copying_since_{};
  SeldomLine too_slow_;
  bool returning_ = false;        // kCopying: it had finished among a minority
  TimePoint return_again_{};      // not before
  std::vector<bool> linked_;      // as far as the links have said
  std::set<Member> unreachable_;  // as far as failure detection has said
  collective::Floats mean_;       // being mixed
  UsualDistance usual_;           // of means from this peer's model after its local steps
  Message<float> message_;
  Received<float> inbox_;
  std::uint32_t heard_ = 0;
};

}  // namespace starling::gossip

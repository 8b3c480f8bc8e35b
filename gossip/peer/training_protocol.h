// SPDX-License-Identifier: Apache-2.0
// How a peer goes through one roster's run: with the neighbours step by step, with the mean of all,
// or in pairs. A training protocol knows no sockets and no threads; it asks its host.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/linalg/aligned.h"
#include "core/protocol/messages.h"
#include "gossip/algorithms/algorithm.h"
#include "gossip/peer/model_copy.h"
#include "gossip/peer/transfer_flow.h"
#include "gossip/peer/usual_distance.h"
#include "gossip/training/traffic.h"

namespace starling::collective {
struct EndedExchange;
}

namespace starling::gossip {

using protocol::Exchange;
using protocol::Member;
using protocol::Progress;

// What a protocol asks of the peer around it. All on one thread, but for the work of compute().
class ProtocolHost {
 public:
  virtual ~ProtocolHost() = default;
  virtual TimePoint now() const = 0;
  // Epoch and transfer id are filled in. Lost where there is no link.
  virtual void send(Member to, protocol::VectorTransfer transfer, SharedBytes data) = 0;
  using Note = std::variant<protocol::ReduceNote, protocol::MixAsk, protocol::MixAnswer>;
  virtual void send(Member to, Note note) = 0;
  // `work` on another thread, then `done` in a later turn; one at a time. Both are dropped when the
  // training ends in between.
  virtual void compute(std::function<void()> work, std::function<void()> done) = 0;
  // As compute(), for a local phase after which the run is at `step`: it may begin later, where the
  // run's pace is bounded.
  virtual void train(std::uint64_t /*step*/, std::function<void()> work,
                     std::function<void()> done) {
    compute(std::move(work), std::move(done));
  }
  // Takes the model of these members, then calls TrainingProtocol::copied(). No patience is longer
  // than the longest that anybody is waited for.
  virtual void copy_model(std::vector<Member> donors, ModelCopy::Patience patience) = 0;
  virtual void say(LogLevel level, std::string line) = 0;
  // The model is another one now, at the end of an exchange: a moment to look at it.
  virtual void advanced() = 0;
  // The protocol is about to end: no training is to begin any more. Its host ends it once it
  // computes nothing.
  virtual bool is_leaving() const = 0;
  virtual void finished() = 0;
  // Nothing sensible can come of going on.
  virtual void failed(Error error) = 0;
};

struct TrainingProgress {
  std::string_view state = "joining";
  Exchange exchange = 0;
  std::uint64_t step = 0;
  double loss_sum = 0;  // over all steps so far in this process
  std::uint64_t loss_steps = 0;
  std::uint32_t heard = 0;  // of those expected, in the last exchange
  std::uint32_t expected = 0;
  // Of messages to it, as far as the protocol knows: late, lost, staleness.
  Traffic traffic = {};
};

// What the protocol of the next epoch continues with, so that a local phase is never trained twice.
struct Handover {
  std::unique_ptr<Algorithm<float>> algorithm;
  Exchange exchange = 0;
  bool trained = false;  // the local phase of this exchange is done, and was not mixed
  // Of an all-reduce, and the members that it is of: what the exchange before ended with.
  std::shared_ptr<const collective::EndedExchange> mean = {};
  std::vector<std::string> names = {};
  // Among neighbours: how far from this peer's own others' vectors are.
  UsualDistance usual_first = {};
  UsualDistance usual_second = {};
};

class TrainingProtocol {
 public:
  virtual ~TrainingProtocol() = default;

  virtual void begin() = 0;
  virtual std::vector<Member> neighbours() const = 0;  // to whom links are kept, ascending
  virtual TrainingProgress progress() const = 0;
  virtual bool is_finished() const = 0;
  virtual bool is_computing() const = 0;
  // What others may copy, and what is stored and handed in: [d]. None while it is being computed.
  virtual std::optional<std::span<const float>> model() const = 0;
  // This peer's own, while copy_model() is not answered yet: what is copied is compared with it.
  virtual std::span<const float> own_model() const { return *model(); }
  // What is stored with it (algorithm_state.h); empty where the model is all. Requires: model().
  virtual Bytes state() const { return {}; }
  // None: the model and state() are what continues. Requires: !is_computing(). Nothing but the
  // destructor may follow.
  virtual std::optional<Handover> hand_over() { return std::nullopt; }

  // False: an earlier process promised what this one does not know of.
  virtual bool remembers() const { return true; }

  // What a greeting says of the model.
  virtual protocol::Support support() const = 0;

  // Whether an announced transfer is of use.
  [[nodiscard]] virtual Result<void> check(Member from,
                                           const protocol::VectorTransfer& transfer) const = 0;
  // One that was not: it says where its sender is all the same.
  virtual void take_unused(Member, const protocol::VectorTransfer&) {}
  virtual void take(Member from, TransferFlow::Whole whole) = 0;
  // What protocols of other kinds say to each other comes to nothing.
  virtual void take_note(Member, const protocol::ReduceNote&) {}
  virtual void take_ask(Member, const protocol::MixAsk&) {}
  virtual void take_answer(Member, const protocol::MixAnswer&) {}
  virtual void take_hello(Member from,
                          const protocol::PeerHello& hello) = 0;  // also when a link is up
  // The link broke, or there was none and it cannot be made.
  virtual void link_lost(Member member) = 0;
  virtual void reach(Member member, bool reachable) = 0;
  // The answer to copy_model(): a model of so many members that has come so far, or nobody gave
  // one.
  virtual void copied(Progress progress, std::size_t givers, std::span<const float> model) = 0;
  virtual void not_copied() = 0;
  // This donor's part is far from this peer's own model: if the loss is no number, it is the cause.
  virtual void suspect(Member donor) = 0;

  virtual void tick() = 0;
  virtual std::optional<TimePoint> next_deadline() const = 0;
};

// Whether all of it is a number: what others send must not poison a model.
bool is_finite(std::span<const float> values);

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
// How a peer goes through one roster's run: with the neighbours step by step, with the mean of all,
// or in pairs. A training protocol is a machine like the others, without sockets, clock or threads:
// events come in with the time, actions go out for EpochSession to perform in order.
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
#include "core/protocol/messages.h"
#include "gossip/algorithms/algorithm.h"
#include "gossip/peer/model_copy.h"
#include "gossip/peer/peer_events.h"
#include "gossip/peer/usual_distance.h"
#include "gossip/training/traffic.h"

namespace starling::collective {
struct EndedExchange;
}

namespace starling::gossip {

using protocol::Exchange;
using protocol::Member;
using protocol::Progress;

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

namespace training {

// --- events, beside those that the peer's machine hears -----------------------------------------
struct Begin {};  // before all others
struct Reach {    // failure detection's word
  Member member = 0;
  bool reachable = true;
};
struct Copied {  // answers CopyModel
  Progress progress;
  std::size_t givers = 0;        // members that parts of it came from
  std::span<const float> model;  // [d], for the event
};
struct NotCopied {};     // the same: nobody gave a model
struct DonorSuspected {  // its part is far from this peer's own model: if the loss is no number,
  Member donor = 0;      // it is the cause
};
struct Continue {};  // answers Advanced, at once
struct Leave {};     // the protocol is about to end, and must not begin to train again
// Of members that take part. Links and transfers are of this epoch, a message may be of another.
using Event = std::variant<Begin, peer::LinkUp, peer::LinkDown, peer::MessageReceived,
                           peer::TransferReceived, peer::TransferRefused, Reach, Copied, NotCopied,
                           DonorSuspected, Continue, peer::Computed, Leave, peer::Tick>;

// --- actions, to be performed in order ----------------------------------------------------------
// A local phase, after which the run is at `step`. As peer::Compute, but it may begin later, where
// the run's pace is bounded. There is one of either at a time.
struct Train {
  std::uint64_t step = 0;
  std::function<void()> work;
};
// Take the model of these members, then Copied or NotCopied; in place of what is being copied. No
// patience is longer than the longest that anybody is waited for.
struct CopyModel {
  std::vector<Member> donors;
  ModelCopy::Patience patience;
};
struct Advanced {};  // an exchange has ended; the model may be read until Continue
struct Finished {};  // the run's last step is done
struct Failed {      // the run cannot go on
  Error error;
};
// What is sent is lost where there is no link. A transfer's epoch and id are filled in.
using Action = std::variant<peer::Send, peer::SendTransfer, Train, peer::Compute, CopyModel,
                            peer::Say, Advanced, Finished, Failed>;

}  // namespace training

class TrainingProtocol {
 public:
  virtual ~TrainingProtocol() = default;

  virtual std::vector<training::Action> on(training::Event event, TimePoint now) = 0;
  virtual std::optional<TimePoint> next_deadline() const = 0;

  virtual std::vector<Member> neighbours() const = 0;  // to whom links are kept, ascending
  virtual TrainingProgress progress() const = 0;
  virtual bool is_finished() const = 0;
  virtual bool is_computing() const = 0;
  // What others may copy, and what is stored and handed in: [d]. None while it is being computed.
  virtual std::optional<std::span<const float>> model() const = 0;
  // This peer's own, also until CopyModel is answered: what is copied is compared with it.
  virtual std::span<const float> own_model() const { return *model(); }
  // What is stored with it (algorithm_state.h); empty where the model is all. Requires: model().
  virtual Bytes state() const { return {}; }
  // None: the model and state() are what continues. Requires: !is_computing(). Nothing but the
  // destructor may follow.
  virtual std::optional<Handover> hand_over() { return std::nullopt; }

  // False: an earlier process promised what this one does not know of.
  virtual bool remembers() const { return true; }

  // What a greeting says of the model.
  virtual protocol::Support support(TimePoint now) const = 0;

  // Whether an announced transfer is of use.
  [[nodiscard]] virtual Result<void> check(Member from,
                                           const protocol::VectorTransfer& transfer) const = 0;
};

// Whether all of it is a number: what others send must not poison a model.
bool is_finite(std::span<const float> values);

}  // namespace starling::gossip

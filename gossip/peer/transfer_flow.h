// SPDX-License-Identifier: Apache-2.0
// Vectors over one link, both ways, in pieces under the receiver's credit: a transfer is announced,
// its first window follows unasked, the rest as credit comes. Without sockets: frames come in,
// frames go out.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "core/protocol/messages.h"
#include "core/protocol/transfer.h"

namespace starling::gossip {

class TransferFlow {
 public:
  struct Options {
    // A constant of the protocol: what may come of a transfer before credit was given.
    std::uint64_t window_bytes = 1024 * 1024;
    std::size_t incoming_max = 16;  // transfers at a time
    std::size_t models_max = 2;     // of those: whole messages of an algorithm, not parts of a sum
    std::size_t outgoing_max = 64;
    std::size_t background_max = 4;  // of those: parts of a model that the other side asked for
    // Of MixMessages, requests, replies and so on each: beyond, the oldest that is not under way is
    // given up. At least 2, so that what is under way arrives on the slowest link.
    std::size_t messages_max = 2;
    std::size_t pieces_max = 1024;   // ReducePieces, whose floats are shared
    std::size_t answers_max = 1024;  // that the other side has not read
  };
  struct Whole {
    protocol::VectorTransfer transfer;
    SharedBytes data;  // aligned to 64 bytes
  };
  // Whether an announced transfer is wanted and of the right size; asked before memory is taken.
  using Check = std::function<Result<void>(const protocol::VectorTransfer&)>;
  enum class Urgency { kNow, kBackground };  // background: while nothing else is to be sent

  // Requires: messages_max >= 2.
  TransferFlow(Options options, Check check);
  // Requires: at least 2.
  void set_messages_max(std::size_t messages_max);

  // Queues a transfer; its transfer id is given here. "queue-full" (kOverloaded) beyond the limits.
  // Requires: data.size() == payload_bytes(transfer).
  [[nodiscard]] Result<void> send(protocol::VectorTransfer transfer, SharedBytes data,
                                  Urgency urgency);

  // VectorTransfer, Chunk, Credit or TaskEnded from the other side; the payload is copied. A
  // transfer that is complete now, if any. What nobody wants is refused to its sender; "bad-chunk"
  // for what breaks the protocol, after which the link is to be closed.
  [[nodiscard]] Result<std::optional<Whole>> take(const protocol::Envelope& envelope);

  // What this Chunk was of, if it is on its way here still; else null.
  const protocol::VectorTransfer* under_way(const protocol::Envelope& envelope) const;

  // The link is another one: nothing that was under way counts.
  void restart();

  // The next frame that may be sent now. The order: answers, what is urgent, the background.
  // Urgent transfers arrive in the order in which they were queued.
  std::optional<protocol::Envelope> next();

 private:
  struct Outgoing {
    protocol::VectorTransfer transfer;
    protocol::TransferSender sender;
    Urgency urgency;
    bool announced = false;
  };
  struct Incoming {
    protocol::VectorTransfer transfer;
    protocol::TransferReceiver receiver;
    std::shared_ptr<std::byte> memory;
  };

  Result<std::optional<Whole>> announced(const protocol::VectorTransfer& transfer);
  Result<std::optional<Whole>> arrived(const protocol::Chunk& chunk, const SharedBytes& piece);
  static Whole finish(Incoming& incoming);
  void give_up_oldest_like(const protocol::VectorTransfer& transfer);
  std::size_t incoming_models() const;
  void give_up_older_pieces(protocol::Epoch epoch, const protocol::ReducePiece& piece);
  std::optional<protocol::Envelope> next_of(Urgency urgency);

  Options options_;
  Check check_;
  std::uint64_t last_transfer_ = 0;
  std::deque<Outgoing> outgoing_;
  std::map<TaskId, Incoming> incoming_;
  std::deque<protocol::Envelope> answers_;
};

}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/transfer_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <tuple>
#include <variant>

#include "core/base/check.h"

namespace starling::gossip {

using protocol::Chunk;
using protocol::Confirmation;
using protocol::Credit;
using protocol::Envelope;
using protocol::Introduction;
using protocol::MixMessage;
using protocol::PairMessage;
using protocol::ReducePiece;
using protocol::TaskEnded;
using protocol::VectorTransfer;
using protocol::WholeModel;

namespace {

template <class T>
bool is(const VectorTransfer& transfer) {
  return std::holds_alternative<T>(transfer.content);
}

bool is_push(const VectorTransfer& transfer) {
  const auto* const pair = std::get_if<PairMessage>(&transfer.content);
  return pair != nullptr && pair->kind == PairMessage::Kind::kPush;
}

// Of what a newer one is enough. A push is not among them: it cannot be given up, and a newer total
// takes its place.
bool is_replaced(const VectorTransfer& transfer) {
  return is<MixMessage>(transfer) || is<Introduction>(transfer) || is<Confirmation>(transfer) ||
         (is<PairMessage>(transfer) && !is_push(transfer));
}

bool are_alike(const VectorTransfer& a, const VectorTransfer& b) {
  const auto* const of_a = std::get_if<PairMessage>(&a.content);
  const auto* const of_b = std::get_if<PairMessage>(&b.content);
  if (of_a != nullptr && of_b != nullptr) return of_a->kind == of_b->kind;
  return a.content.index() == b.content.index();
}

bool is_model(const VectorTransfer& transfer) {
  return is<MixMessage>(transfer) || is<PairMessage>(transfer) || is<WholeModel>(transfer);
}

// All the mass that ever went over this link: an older one is of no use beside it.
bool is_total(const VectorTransfer& transfer) {
  return is_push(transfer) && std::get<PairMessage>(transfer.content).packed > 0;
}

// Not cleared: who announces much and sends little costs no pages, and every byte is written once.
std::shared_ptr<std::byte> untouched_memory(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  return {static_cast<std::byte*>(::operator new(bytes, kAlignment)),
          [](std::byte* memory) { ::operator delete(memory, kAlignment); }};
}

}  // namespace

TransferFlow::TransferFlow(Options options, Check check)
    : options_(options), check_(std::move(check)) {
  STARLING_CHECK(check_ != nullptr && options_.messages_max >= 2);
}

void TransferFlow::set_messages_max(std::size_t messages_max) {
  STARLING_CHECK(messages_max >= 2);
  options_.messages_max = messages_max;
}

// To one that reads nothing, or on a link that is too slow for the network's pace. What is under
// way stays: it would have been sent for nothing, and on a slow link nothing would ever arrive.
void TransferFlow::give_up_oldest_like(const VectorTransfer& transfer) {
  const auto is_such = [&](const Outgoing& out) { return are_alike(out.transfer, transfer); };
  auto count = static_cast<std::size_t>(std::ranges::count_if(outgoing_, is_such));
  std::erase_if(outgoing_, [&](const Outgoing& out) {
    const bool gives_way = is_such(out) && !out.announced && count >= options_.messages_max;
    if (gives_way) --count;
    return gives_way;
  });
}

std::size_t TransferFlow::incoming_models() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      incoming_, [](const auto& entry) { return is_model(entry.second.transfer); }));
}

// Who sends a piece of an attempt knows that the other side has left all earlier ones.
void TransferFlow::give_up_older_pieces(protocol::Epoch epoch, const ReducePiece& piece) {
  const auto attempt = [](protocol::Epoch of, const ReducePiece& p) {
    return std::tuple(of, p.exchange, p.attempt);
  };
  std::erase_if(outgoing_, [&](const Outgoing& o) {
    const auto* const other = std::get_if<ReducePiece>(&o.transfer.content);
    return other != nullptr && !o.announced &&
           attempt(o.transfer.epoch, *other) < attempt(epoch, piece);
  });
}

Result<void> TransferFlow::send(VectorTransfer transfer, SharedBytes data, Urgency urgency) {
  STARLING_CHECK(data.size() == payload_bytes(transfer));
  if (is_replaced(transfer)) give_up_oldest_like(transfer);
  if (is_total(transfer)) {
    std::erase_if(outgoing_,
                  [](const Outgoing& o) { return !o.announced && is_total(o.transfer); });
  }
  const auto* const piece = std::get_if<ReducePiece>(&transfer.content);
  if (piece != nullptr) give_up_older_pieces(transfer.epoch, *piece);
  std::size_t waiting = outgoing_.size();
  std::size_t most = piece != nullptr ? options_.pieces_max : options_.outgoing_max;
  if (urgency == Urgency::kBackground) {
    waiting = static_cast<std::size_t>(
        std::ranges::count(outgoing_, Urgency::kBackground, &Outgoing::urgency));
    most = options_.background_max;
  }
  if (waiting >= most) {
    return overloaded("queue-full",
                      fmt::format("{} transfers wait to be sent already, which is the "
                                  "limit",
                                  waiting));
  }
  transfer.id = TaskId(++last_transfer_);
  protocol::TransferSender sender(std::move(data), protocol::kChunkBytesMax);
  STARLING_TRY(sender.start(0, options_.window_bytes));
  outgoing_.push_back({transfer, std::move(sender), urgency});
  return {};
}

std::optional<Envelope> TransferFlow::next_of(Urgency urgency) {
  for (auto out = outgoing_.begin(); out != outgoing_.end(); ++out) {
    if (out->urgency != urgency) continue;
    Envelope envelope;
    if (!out->announced) {
      out->announced = true;
      envelope.message = out->transfer;
    } else if (auto piece = out->sender.next()) {
      envelope = {Chunk{out->transfer.id, piece->offset}, std::move(piece->bytes)};
    } else if (urgency == Urgency::kNow) {
      return std::nullopt;  // until credit comes: what is behind it keeps its place
    } else {
      continue;
    }
    if (out->sender.done()) outgoing_.erase(out);
    return envelope;
  }
  return std::nullopt;
}

std::optional<Envelope> TransferFlow::next() {
  if (!answers_.empty()) {
    Envelope answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  auto urgent = next_of(Urgency::kNow);
  return urgent ? std::move(urgent) : next_of(Urgency::kBackground);
}

const VectorTransfer* TransferFlow::under_way(const Envelope& envelope) const {
  const auto* const chunk = std::get_if<Chunk>(&envelope.message);
  if (chunk == nullptr) return nullptr;
  const auto found = incoming_.find(chunk->task);
  return found == incoming_.end() ? nullptr : &found->second.transfer;
}

void TransferFlow::restart() {
  outgoing_.clear();
  incoming_.clear();
  answers_.clear();
}

TransferFlow::Whole TransferFlow::finish(Incoming& incoming) {
  const ByteView view(incoming.memory.get(), static_cast<std::size_t>(incoming.receiver.total()));
  return {incoming.transfer, SharedBytes(std::move(incoming.memory), view)};
}

Result<std::optional<TransferFlow::Whole>> TransferFlow::announced(const VectorTransfer& transfer) {
  auto wanted = check_(transfer);
  const bool has_room = incoming_.size() < options_.incoming_max &&
                        (!is_model(transfer) || incoming_models() < options_.models_max);
  if (wanted && !has_room) {
    wanted = overloaded("queue-full", "too many transfers are on their way here already");
  }
  if (wanted && incoming_.contains(transfer.id)) {
    return rejected("bad-chunk", "two transfers bear one id");
  }
  if (!wanted) {
    answers_.push_back(
        {TaskEnded{transfer.id, wanted.error().code(), wanted.error().message()}, {}});
    return std::optional<Whole>();
  }
  const std::uint64_t bytes = payload_bytes(transfer);
  Incoming incoming{transfer, protocol::TransferReceiver(bytes, options_.window_bytes),
                    untouched_memory(static_cast<std::size_t>(bytes))};
  if (bytes == 0) return std::optional(finish(incoming));
  incoming_.emplace(transfer.id, std::move(incoming));
  return std::optional<Whole>();
}

Result<std::optional<TransferFlow::Whole>> TransferFlow::arrived(const Chunk& chunk,
                                                                 const SharedBytes& piece) {
  const auto found = incoming_.find(chunk.task);
  if (found == incoming_.end()) return std::optional<Whole>();  // refused, or given up meanwhile
  Incoming& incoming = found->second;
  STARLING_ASSIGN(const bool fresh, incoming.receiver.take(chunk.offset, piece.size()));
  if (!fresh) return std::optional<Whole>();
  std::memcpy(incoming.memory.get() + chunk.offset, piece.view().data(), piece.size());
  if (!incoming.receiver.done()) {
    if (const auto limit = incoming.receiver.credit_due()) {
      answers_.push_back({Credit{chunk.task, *limit}, {}});
    }
    return std::optional<Whole>();
  }
  Whole whole = finish(incoming);
  incoming_.erase(found);
  return std::optional(std::move(whole));
}

Result<std::optional<TransferFlow::Whole>> TransferFlow::take(const Envelope& envelope) {
  if (answers_.size() >= options_.answers_max) {
    return rejected("bad-chunk", fmt::format("{} answers to what it sent wait to be read by it",
                                             answers_.size()));
  }
  if (const auto* transfer = std::get_if<VectorTransfer>(&envelope.message))
    return announced(*transfer);
  if (const auto* chunk = std::get_if<Chunk>(&envelope.message)) {
    return arrived(*chunk, envelope.payload);
  }
  if (const auto* credit = std::get_if<Credit>(&envelope.message)) {
    const auto out =
        std::ranges::find(outgoing_, credit->task, [](const Outgoing& o) { return o.transfer.id; });
    if (out != outgoing_.end()) out->sender.extend(credit->limit);
  } else if (const auto* ended = std::get_if<TaskEnded>(&envelope.message)) {
    // Ids of the two directions are apart: an answer to what we sent bears one of ours, and what
    // the other side gives up one of theirs. Both may be meant at once only by a liar.
    if (ended->code == "superseded") {
      incoming_.erase(ended->task);
    } else {
      std::erase_if(outgoing_, [&](const Outgoing& o) { return o.transfer.id == ended->task; });
    }
  }
  return std::optional<Whole>();
}

}  // namespace starling::gossip

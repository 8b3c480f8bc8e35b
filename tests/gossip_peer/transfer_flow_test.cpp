// SPDX-License-Identifier: Apache-2.0
// What waits on one link to be sent, and what waits to be read.
#include "gossip/peer/transfer_flow.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using protocol::Envelope;
using protocol::MixMessage;
using protocol::PairMessage;
using protocol::ReducePiece;
using protocol::VectorTransfer;
using Urgency = TransferFlow::Urgency;

Result<void> wanted(const VectorTransfer&) { return {}; }
Result<void> unwanted(const VectorTransfer&) { return rejected("not-wanted", "not wanted"); }

VectorTransfer piece(protocol::Exchange exchange, std::uint32_t attempt, std::uint64_t place) {
  return {.epoch = 1,
          .content =
              ReducePiece{.exchange = exchange, .attempt = attempt, .place = place, .floats = 1}};
}

void queue(TransferFlow& flow, const VectorTransfer& transfer) {
  ASSERT_TRUE(flow.send(transfer, SharedBytes::own(Bytes(sizeof(float))), Urgency::kNow));
}

// The transfers of `flow` in the order in which they are announced.
std::vector<VectorTransfer> announced(TransferFlow& flow) {
  std::vector<VectorTransfer> transfers;
  while (const auto envelope = flow.next()) {
    if (const auto* transfer = std::get_if<VectorTransfer>(&envelope->message))
      transfers.push_back(*transfer);
  }
  return transfers;
}

TEST(TransferFlow, PiecesOfAnAttemptThatWasLeftMakeWay) {
  TransferFlow flow({}, wanted);
  queue(flow, piece(3, 9, 0));
  ASSERT_TRUE(flow.next());  // announced: the other side awaits it
  queue(flow, piece(3, 9, 1));
  queue(flow, piece(4, 1, 2));
  queue(flow, piece(4, 1, 3));
  queue(flow, piece(4, 5, 4));
  const auto transfers = announced(flow);
  ASSERT_EQ(transfers.size(), 1U);
  EXPECT_EQ(std::get<ReducePiece>(transfers[0].content).place, 4U);
}

// A ring of 200 gives its next member as many pieces before it waits for any answer.
TEST(TransferFlow, ARingOfManyIsQueuedWhole) {
  TransferFlow flow({}, wanted);
  for (std::uint64_t place = 0; place < 200; ++place) queue(flow, piece(1, 1, place));
  EXPECT_EQ(announced(flow).size(), 200U);
}

// Who asks for models and takes none makes nobody hold many of them.
TEST(TransferFlow, FewModelsWaitForOneThatTakesNone) {
  TransferFlow flow({.background_max = 2}, wanted);
  const VectorTransfer columns{.epoch = 1, .content = protocol::ModelColumns{.floats = 1}};
  const SharedBytes data = SharedBytes::own(Bytes(sizeof(float)));
  EXPECT_TRUE(flow.send(columns, data, Urgency::kBackground));
  queue(flow, piece(1, 1, 1));
  EXPECT_TRUE(flow.send(columns, data, Urgency::kBackground));
  const auto third = flow.send(columns, data, Urgency::kBackground);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), "queue-full");
  queue(flow, piece(1, 1, 2));
}

// A neighbour that was paused costs two models of each kind, however long the others train.
TEST(TransferFlow, TwoMessagesWaitForOneThatReadsNothing) {
  using Make = std::function<VectorTransfer::Content(std::uint64_t number)>;
  const Make mix = [](std::uint64_t number) { return MixMessage{.exchange = number, .first = 1}; };
  const auto pair = [](PairMessage::Kind kind) -> Make {
    return [kind](std::uint64_t number) {
      return PairMessage{.kind = kind, .number = number, .floats = 1};
    };
  };
  for (const Make& make :
       {mix, pair(PairMessage::Kind::kRequest), pair(PairMessage::Kind::kReply)}) {
    TransferFlow flow({}, wanted);
    std::vector<std::weak_ptr<const void>> models;
    for (std::uint64_t exchange = 0; exchange < 50; ++exchange) {
      SharedBytes data = SharedBytes::own(Bytes(sizeof(float)));
      models.push_back(data.owner());
      const VectorTransfer transfer{.epoch = 1, .content = make(exchange)};
      ASSERT_TRUE(flow.send(transfer, std::move(data), Urgency::kNow));
      if (exchange == 0) {
        ASSERT_TRUE(flow.next());  // announced, and then nothing more is read
      }
      ASSERT_LE(std::ranges::count(models, false, [](const auto& m) { return m.expired(); }), 2);
    }
    const auto first = flow.next();
    ASSERT_TRUE(first && std::holds_alternative<protocol::Chunk>(first->message))
        << "what was under way is sent to its end";
    const auto rest = announced(flow);
    ASSERT_EQ(rest.size(), 1U);
    EXPECT_EQ(rest[0].content, make(49)) << "then the latest";
  }
}

TEST(TransferFlow, TwoModelsMayBeOnTheirWayHere) {
  TransferFlow flow({}, wanted);
  VectorTransfer transfer{.epoch = 1, .content = MixMessage{.first = 1}};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    transfer.id = TaskId(i);
    ASSERT_TRUE(flow.take(Envelope{transfer, {}}));
  }
  const auto refused = flow.next();
  ASSERT_TRUE(refused);
  const auto* ended = std::get_if<protocol::TaskEnded>(&refused->message);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->task, TaskId(3));
  EXPECT_EQ(ended->code, "queue-full");
  EXPECT_FALSE(flow.next()) << "the others may come";
  const VectorTransfer introduction{.id = TaskId(4), .content = protocol::Introduction{}};
  const auto whole = flow.take(Envelope{introduction, {}});
  EXPECT_TRUE(whole && *whole) << "what bears no model may";
}

TEST(TransferFlow, WhoDoesNotReadItsRefusalsIsGivenUp) {
  TransferFlow flow({.answers_max = 8}, unwanted);
  VectorTransfer transfer = piece(1, 1, 0);
  for (std::uint64_t i = 0; i < 8; ++i) {
    transfer.id = TaskId(i + 1);
    ASSERT_TRUE(flow.take(Envelope{transfer, {}}));
  }
  transfer.id = TaskId(9);
  const auto refused = flow.take(Envelope{transfer, {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(std::string(refused.error().code()), "bad-chunk");
  while (flow.next()) continue;
  EXPECT_TRUE(flow.take(Envelope{transfer, {}}));
}

}  // namespace
}  // namespace starling::gossip

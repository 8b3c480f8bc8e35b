// SPDX-License-Identifier: Apache-2.0
// What waits on one link to be sent, and what waits to be read.
#include "gossip/peer/parcel_flow.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using protocol::Envelope;
using protocol::Parcel;
using Urgency = ParcelFlow::Urgency;

Result<void> wanted(const Parcel&) { return {}; }
Result<void> unwanted(const Parcel&) { return rejected("not-wanted", "not wanted"); }

Parcel piece(protocol::Exchange exchange, std::uint32_t attempt, std::uint64_t place) {
  return {.kind = Parcel::Kind::kReduce,
          .epoch = 1,
          .exchange = exchange,
          .attempt = attempt,
          .place = place,
          .first = 1};
}

void queue(ParcelFlow& flow, const Parcel& parcel) {
  ASSERT_TRUE(flow.send(parcel, SharedBytes::own(Bytes(sizeof(float))), Urgency::kNow));
}

// The parcels of `flow` in the order in which they are announced.
std::vector<Parcel> announced(ParcelFlow& flow) {
  std::vector<Parcel> parcels;
  while (const auto envelope = flow.next()) {
    if (const auto* parcel = std::get_if<Parcel>(&envelope->message)) parcels.push_back(*parcel);
  }
  return parcels;
}

TEST(ParcelFlow, PiecesOfAnAttemptThatWasLeftMakeWay) {
  ParcelFlow flow({}, wanted);
  queue(flow, piece(3, 9, 0));
  ASSERT_TRUE(flow.next());  // announced: the other side awaits it
  queue(flow, piece(3, 9, 1));
  queue(flow, piece(4, 1, 2));
  queue(flow, piece(4, 1, 3));
  queue(flow, piece(4, 5, 4));
  const auto parcels = announced(flow);
  ASSERT_EQ(parcels.size(), 1U);
  EXPECT_EQ(parcels[0].place, 4U);
}

// A ring of 200 gives its next member as many pieces before it waits for any answer.
TEST(ParcelFlow, ARingOfManyIsQueuedWhole) {
  ParcelFlow flow({}, wanted);
  for (std::uint64_t place = 0; place < 200; ++place) queue(flow, piece(1, 1, place));
  EXPECT_EQ(announced(flow).size(), 200U);
}

// Who asks for models and takes none makes nobody hold many of them.
TEST(ParcelFlow, FewModelsWaitForOneThatTakesNone) {
  ParcelFlow flow({.background_max = 2}, wanted);
  Parcel columns{.kind = Parcel::Kind::kColumns, .epoch = 1, .first = 1};
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
TEST(ParcelFlow, TwoMessagesWaitForOneThatReadsNothing) {
  for (const auto kind : {Parcel::Kind::kMix, Parcel::Kind::kRequest, Parcel::Kind::kReply}) {
    ParcelFlow flow({}, wanted);
    std::vector<std::weak_ptr<const void>> models;
    for (std::uint64_t exchange = 0; exchange < 50; ++exchange) {
      SharedBytes data = SharedBytes::own(Bytes(sizeof(float)));
      models.push_back(data.owner());
      const Parcel parcel{.kind = kind, .epoch = 1, .exchange = exchange, .first = 1};
      ASSERT_TRUE(flow.send(parcel, std::move(data), Urgency::kNow));
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
    EXPECT_EQ(rest[0].exchange, 49U) << "then the latest";
  }
}

TEST(ParcelFlow, TwoModelsMayBeOnTheirWayHere) {
  ParcelFlow flow({}, wanted);
  Parcel parcel{.kind = Parcel::Kind::kMix, .epoch = 1, .first = 1};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    parcel.transfer = TaskId(i);
    ASSERT_TRUE(flow.take(Envelope{parcel, {}}));
  }
  const auto refused = flow.next();
  ASSERT_TRUE(refused);
  const auto* ended = std::get_if<protocol::TaskEnded>(&refused->message);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->task, TaskId(3));
  EXPECT_EQ(ended->code, "queue-full");
  EXPECT_FALSE(flow.next()) << "the others may come";
}

TEST(ParcelFlow, WhoDoesNotReadItsRefusalsIsGivenUp) {
  ParcelFlow flow({.answers_max = 8}, unwanted);
  Parcel parcel = piece(1, 1, 0);
  for (std::uint64_t i = 0; i < 8; ++i) {
    parcel.transfer = TaskId(i + 1);
    ASSERT_TRUE(flow.take(Envelope{parcel, {}}));
  }
  parcel.transfer = TaskId(9);
  const auto refused = flow.take(Envelope{parcel, {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(std::string(refused.error().code()), "bad-chunk");
  while (flow.next()) continue;
  EXPECT_TRUE(flow.take(Envelope{parcel, {}}));
}

}  // namespace
}  // namespace starling::gossip

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

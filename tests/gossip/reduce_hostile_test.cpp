// SPDX-License-Identifier: Apache-2.0
// Notes and pieces that no honest member sends, in the middle of honest runs: they change nothing,
// crash nothing and are not kept.
#include <gtest/gtest.h>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using Kind = protocol::ReduceNote::Kind;

const std::vector<float> kInput = {1, 2, 3, 4, 5, 6, 7, 8};

AllReduceOptions ring() { return {.shape = {.choice = ShapeRule::Choice::kRing}}; }

NoteReceived note(Member from, Kind kind, Exchange exchange, std::uint32_t attempt,
                  std::vector<Member> members = {}, std::uint32_t held = 0) {
  return {from,
          {.kind = kind,
           .epoch = 1,
           .exchange = exchange,
           .attempt = attempt,
           .held = held,
           .members = std::move(members),
           .backed = exchange}};
}

PieceReceived piece(Member from, std::uint32_t attempt, std::uint64_t place, std::size_t floats) {
  return {from, 1, {}, attempt, place, share(std::vector<float>(floats, 1))};
}

// Member 1 of 4, which has joined attempt 1 and waits for member 0's first piece of 2 floats.
AllReduceMachine in_attempt() {
  AllReduceMachine machine(ring(), 1, 1, testing::member_names(4));
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{});
  const auto actions = machine.on(note(0, Kind::kList, 0, 1, {0, 1, 2, 3}), TimePoint{});
  EXPECT_EQ(actions.size(), 1U);  // its own first segment
  return machine;
}

TEST(AllReduceHostile, PiecesThatAreNotTheNextChangeNothing) {
  AllReduceMachine machine = in_attempt();
  const std::uint64_t next = place_of(Phase::kScatter, 0);
  PieceReceived other_exchange = piece(0, 1, next, 2);
  other_exchange.at = testing::at(7);
  PieceReceived other_epoch = piece(0, 1, next, 2);
  other_epoch.epoch = 2;
  const std::vector<PieceReceived> wrong = {
      piece(2, 1, next, 2),                          // not from the one before us
      piece(9, 1, next, 2),                          // no member
      piece(1, 1, next, 2),                          // ourselves
      piece(0, 2, next, 2),                          // another attempt
      piece(0, 0, next, 2),                          //
      piece(0, 1, next, 3),                          // another size
      piece(0, 1, next, 0),                          //
      piece(0, 1, place_of(Phase::kScatter, 1), 2),  // another step
      piece(0, 1, place_of(Phase::kGather, 0), 2),
      piece(0, 1, place_of(Phase::kDown, 0), 8),
      piece(0, 1, place_of(Phase::kResult, 0), 8),  // unasked
      piece(0, 1, ~std::uint64_t{0}, 2),
      other_exchange,
      other_epoch,
  };
  for (const PieceReceived& bad : wrong) {
    EXPECT_TRUE(machine.on(bad, TimePoint{}).empty()) << bad.place;
    EXPECT_EQ(machine.early_floats(), 0U);
  }
  EXPECT_EQ(machine.on(piece(0, 1, next, 2), TimePoint{}).size(), 1U);  // the right one still is
  EXPECT_TRUE(machine.on(piece(0, 1, next, 2), TimePoint{}).empty());   // once
}

TEST(AllReduceHostile, NotesThatNobodyMaySendChangeNothing) {
  AllReduceMachine machine = in_attempt();
  NoteReceived other_epoch = note(0, Kind::kAsk, 0, 5);
  other_epoch.note.epoch = 2;
  const std::vector<NoteReceived> wrong = {
      note(0, Kind::kList, 0, 1, {0, 1}),         // joined already
      note(2, Kind::kList, 0, 3, {1, 2}),         // never promised
      note(2, Kind::kList, 0, 1, {1, 2}),         // not its own number
      note(0, Kind::kAsk, 0, 4'000'000'001),      // nobody is so far ahead
      note(7, Kind::kAsk, 0, 8),                  // no member
      note(1, Kind::kAsk, 0, 6),                  // ourselves
      note(0, Kind::kCommit, 0, 1, {1, 0}),       // no list of members
      note(0, Kind::kCommit, 0, 1, {}),           //
      note(0, Kind::kCommit, 0, 1, {0, 99}),      //
      note(0, Kind::kCommit, 0, 0, {0, 1}),       // no number
      note(0, Kind::kWant, 0, 1),                 // we hold nothing
      note(3, Kind::kDone, 0, 1),                 // we do not gather
      note(3, Kind::kAhead, 7, 0, {9}),           // no list of members
      note(2, Kind::kRegister, 0, 2, {5, 1}, 1),  // no list of members
      other_epoch,
  };
  for (const NoteReceived& bad : wrong) {
    EXPECT_TRUE(machine.on(bad, TimePoint{}).empty()) << static_cast<int>(bad.note.kind);
  }
  EXPECT_EQ(machine.on(piece(0, 1, place_of(Phase::kScatter, 0), 2), TimePoint{}).size(), 1U);
}

TEST(AllReduceHostile, EarlyPiecesAreBounded) {
  AllReduceMachine machine(ring(), 1, 1, testing::member_names(4));
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{});
  for (Member from : {0U, 2U, 3U}) {
    for (std::uint64_t place = 0; place < 1000; ++place) {
      EXPECT_TRUE(machine.on(piece(from, 1, place, 1 + place % 9), TimePoint{}).empty());
    }
  }
  EXPECT_LE(machine.early_floats(), 3 * kInput.size());
  // What leaves the attempt behind leaves them too.
  EXPECT_FALSE(machine.on(note(0, Kind::kAsk, 0, 5), TimePoint{}).empty());
  EXPECT_EQ(machine.early_floats(), 0U);
}

TEST(AllReduceHostile, AResultIsNotSentForEver) {
  AllReduceMachine machine(ring(), 1, 0, testing::member_names(2));
  (void)machine.on(LinkUp{1, {}}, TimePoint{});
  (void)machine.on(LinkDown{1}, TimePoint{});
  (void)machine.on(Begin{testing::at(0), share(kInput)}, TimePoint{} + std::chrono::seconds(1));
  ASSERT_FALSE(machine.busy());
  std::size_t sent = 0;
  for (int i = 0; i < 1000; ++i) sent += machine.on(note(1, Kind::kWant, 0, 1), TimePoint{}).size();
  EXPECT_GT(sent, 0U);
  EXPECT_LE(sent, 16U);
}

// Members that send nonsense with plausible numbers: no crash, bounded answers, bounded memory.
TEST(AllReduceHostile, RandomEvents) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    Rng rng({.seed = seed, .purpose = Purpose::kTest, .node = 9});
    const std::size_t members = 1 + rng.below(6);
    const auto self = static_cast<Member>(rng.below(members));
    AllReduceMachine machine({}, 1, self, testing::member_names(members));
    TimePoint now{};
    Progress next;
    for (int i = 0; i < 300; ++i) {
      now += std::chrono::milliseconds(rng.below(400));
      const auto from = static_cast<Member>(rng.below(members + 1));
      const auto attempt = static_cast<std::uint32_t>(
          rng.below(20) == 0 ? rng.next_u32() : rng.below(4 * members + 1));
      const Exchange exchange =
          rng.below(20) == 0 ? rng.next_u64() : next.exchange - rng.below(2) + rng.below(2);
      const Exchange backed = rng.below(2) == 0 ? exchange : next.backed + rng.below(2);
      std::vector<Member> list;
      for (Member m = 0; m <= members; ++m) {
        if (rng.below(3) != 0 && (m < members || rng.below(20) == 0)) list.push_back(m);
      }
      Event event = Tick{};
      switch (rng.below(8)) {
        case 0:
          if (!machine.busy() || rng.below(9) == 0) event = Begin{next, share(kInput)};
          break;
        case 1:
          event = LinkUp{from, {}};
          break;
        case 2:
          if (rng.below(3) == 0) event = LinkDown{from};
          break;
        case 3: {
          const std::size_t size = rng.below(2) == 0 ? kInput.size() : rng.below(10);
          PieceReceived received =
              piece(from, attempt, place_of(static_cast<Phase>(rng.below(6)), rng.below(4)), size);
          received.at = {backed, exchange};
          event = std::move(received);
          break;
        }
        default: {
          NoteReceived received = note(from, static_cast<Kind>(rng.below(9)), exchange, attempt,
                                       list, static_cast<std::uint32_t>(rng.below(2 * members)));
          received.note.backed = backed;
          received.note.other = from;
          received.note.count = static_cast<std::uint16_t>(rng.below(4));
          event = std::move(received);
        }
      }
      const auto follow = [&](const std::vector<Action>& actions) {
        for (const Action& action : actions) {
          if (const auto* further = std::get_if<CatchUp>(&action)) next = further->next;
          if (const auto* finished = std::get_if<Finished>(&action)) next = finished->next;
        }
        return actions.size();
      };
      ASSERT_LE(follow(machine.on(std::move(event), now)), 8 * members + 8) << "seed " << seed;
      ASSERT_LE(machine.early_floats(), members * kInput.size()) << "seed " << seed;
      ASSERT_LT(machine.waiting_for().value_or(0), members);
      // A deadline that stays in the past would spin.
      for (int tick = 0; machine.next_deadline() && *machine.next_deadline() <= now; ++tick) {
        ASSERT_LT(tick, 4) << "seed " << seed;
        follow(machine.on(Tick{}, now));
      }
    }
  }
}

}  // namespace
}  // namespace starling::collective

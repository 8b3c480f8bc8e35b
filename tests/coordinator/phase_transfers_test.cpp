// SPDX-License-Identifier: Apache-2.0
// The transfers of a phase by hand: repeated, out of order, without room, and cut anywhere.
#include "coordinator/machine/phase_transfers.h"

#include <gtest/gtest.h>

#include <set>

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using State = RoundMachine::State;

constexpr TaskId kTask(7);
constexpr std::uint64_t kUpdateBytes = 100;
const Error kNoRoomNow = overloaded("spool-full", "the spool is full");

// One client that is connected, and its task.
struct PhaseTransfersRig {
  PhaseTransfersRig() {
    start.id = RunId(1);
    start.job.job.rounds = 2;
    start.at.model = std::make_shared<model::Parameters>(
        model::Layout::make({{.name = "weights", .shape = {10}}}).value());
    clients.handle(ClientAdmitted{"a"});
    connect();
  }

  void connect() {
    const SessionId next(session.value() + 1);
    clients.handle(SessionOpened{next, "a"});
    clients.greet(next, protocol::Hello{});
    session = next;
    turn.actions.clear();
  }
  void disconnect() { clients.handle(SessionClosed{session}); }
  void offer() {
    turn.actions.clear();
    transfers.offered({.task = kTask, .weight = 3, .payload_bytes = kUpdateBytes});
  }
  Result<void> open(Result<std::uint64_t> received) {
    turn.actions.clear();
    return transfers.handle(UploadOpened{kTask, std::move(received)});
  }
  void chunk(std::uint64_t offset, std::uint64_t bytes) {
    turn.actions.clear();
    transfers.receive(session, protocol::Chunk{kTask, offset}, SharedBytes::own(Bytes(bytes)));
  }
  template <class Action>
  std::vector<Action> did() const {
    std::vector<Action> found;
    for (const auto& action : turn.actions) {
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <class Message>
  std::vector<Message> sent() const {
    std::vector<Message> found;
    for (const Send& send : did<Send>()) {
      if (const auto* one = std::get_if<Message>(&send.envelope.message)) found.push_back(*one);
    }
    return found;
  }
  std::string closed_because() const {
    const auto closed = did<CloseSession>();
    return closed.empty() ? "" : closed[0].code;
  }
  State state() const { return tasks.find(kTask)->state; }

  Turn turn;
  CoordinatorOptions options{.transfer = {.chunk_bytes_max = 20, .window_bytes = 50}};
  RunStart start;
  RoundMachine tasks{{.run = RunId(1), .deadline = 1h}, {{"a", kTask}}, {}};
  update::Schema schema;
  SessionId session;
  ClientTable clients{options,
                      turn,
                      {.came = [](auto&&...) {},
                       .went_away =
                           [this](const std::string&, const ClientTable::Client& client) {
                             if (client.seen) transfers.interrupt(kTask);
                           },
                       .revoked = [](auto&&...) {},
                       .turn_came = [](auto&&...) {}}};
  PhaseTransfers transfers{{start, options, clients, turn}, tasks, schema, true};
};

class PhaseTransfersTest : public ::testing::Test, protected PhaseTransfersRig {};

// --- down ---------------------------------------------------------------------------------------

TEST_F(PhaseTransfersTest, AModelGoesOutAsFarAsTheCreditReaches) {
  transfers.receive(session, protocol::ModelRequest{kTask, 0, 25});
  ASSERT_EQ(did<Send>().size(), 2U);
  EXPECT_EQ(did<Send>()[1].envelope.payload.size(), 5U);
  turn.actions.clear();
  transfers.receive(session, protocol::Credit{kTask, 20});
  EXPECT_TRUE(turn.actions.empty()) << "credit is never taken back";
  transfers.receive(session, protocol::Credit{kTask, 1000});
  ASSERT_EQ(sent<protocol::Chunk>().size(), 1U) << "15 bytes are left of 40";
  EXPECT_EQ(sent<protocol::Chunk>()[0].offset, 25U);
  EXPECT_EQ(did<RecordTraffic>().size(), 1U);
  turn.actions.clear();
  transfers.receive(session, protocol::Credit{kTask, 2000});
  EXPECT_TRUE(turn.actions.empty()) << "of a download that is over";
}

TEST_F(PhaseTransfersTest, ARequestBeyondTheModelOrOfNoInputClosesTheSession) {
  transfers.receive(session, protocol::ModelRequest{kTask, 41, 1000});
  EXPECT_EQ(closed_because(), "bad-offset");
  connect();
  transfers.receive(session, protocol::ModelRequest{kTask, 0, 1000, 1});
  EXPECT_EQ(closed_because(), "bad-message");
}

TEST_F(PhaseTransfersTest, CreditOfAnEarlierConnectionReachesNoFurther) {
  transfers.receive(session, protocol::ModelRequest{kTask, 0, 20});
  disconnect();
  connect();
  transfers.receive(session, protocol::Credit{kTask, 40});
  EXPECT_TRUE(turn.actions.empty());
  transfers.receive(session, protocol::ModelRequest{kTask, 20, 40});
  EXPECT_EQ(sent<protocol::Chunk>().size(), 1U);
}

// --- up -----------------------------------------------------------------------------------------

TEST_F(PhaseTransfersTest, AnOfferThatIsRepeatedTakesThePlaceOfTheEarlierOne) {
  offer();
  ASSERT_EQ(did<OpenUpload>().size(), 1U);
  ASSERT_TRUE(open(0));
  ASSERT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
  EXPECT_EQ(sent<protocol::UpdateAccept>()[0].limit, 50U);
  chunk(0, 20);
  EXPECT_EQ(did<WriteUpload>().size(), 1U);
  offer();
  ASSERT_EQ(did<OpenUpload>().size(), 1U);
  chunk(20, 20);
  EXPECT_TRUE(turn.actions.empty()) << "where to go on is not known yet";
  ASSERT_TRUE(open(20));
  ASSERT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
  EXPECT_EQ(sent<protocol::UpdateAccept>()[0].offset, 20U);
  chunk(20, 20);
  EXPECT_EQ(did<WriteUpload>().size(), 1U);
}

TEST_F(PhaseTransfersTest, AChunkThatComesTwiceIsWrittenOnce) {
  offer();
  ASSERT_TRUE(open(0));
  chunk(0, 20);
  chunk(0, 20);
  EXPECT_TRUE(turn.actions.empty());
  EXPECT_EQ(tasks.bytes_in(), 20U);
}

TEST_F(PhaseTransfersTest, AChunkOutOfOrderOrBeyondTheCreditClosesTheSession) {
  for (const auto& [offset, bytes] : {std::pair(20, 20), std::pair(0, 51)}) {
    offer();
    ASSERT_TRUE(open(0));
    chunk(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes));
    EXPECT_EQ(closed_because(), "bad-chunk");
    EXPECT_TRUE(did<WriteUpload>().empty());
    EXPECT_EQ(state(), State::kAsked) << "on another connection it may offer again";
    connect();
  }
}

TEST_F(PhaseTransfersTest, AnUpdateOfScalarsAloneIsWholeAtOnce) {
  transfers.offered({.task = kTask, .weight = 3});
  EXPECT_EQ(turn.actions.size(), 1U);
  EXPECT_EQ(did<SumUpload>().size(), 1U);
}

TEST_F(PhaseTransfersTest, AnUpdateThatWasWholeBeforeARestartIsSummedWithoutAnyChunk) {
  offer();
  ASSERT_TRUE(open(kUpdateBytes));
  EXPECT_EQ(did<SumUpload>().size(), 1U);
  EXPECT_TRUE(did<Send>().empty());
}

// --- room ---------------------------------------------------------------------------------------

TEST_F(PhaseTransfersTest, WithoutRoomItTriesAgainUntilThereIsSome) {
  offer();
  ASSERT_TRUE(open(kNoRoomNow));
  EXPECT_TRUE(turn.actions.empty()) << "no room, no credit";
  ASSERT_EQ(transfers.next_deadline(), turn.now + options.upload_retry);
  transfers.retry_uploads();
  EXPECT_TRUE(turn.actions.empty()) << "not yet";
  turn.now += options.upload_retry;
  transfers.retry_uploads();
  ASSERT_EQ(did<OpenUpload>().size(), 1U);
  EXPECT_EQ(did<OpenUpload>()[0].bytes, kUpdateBytes);
  ASSERT_TRUE(open(0));
  EXPECT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
  EXPECT_EQ(transfers.next_deadline(), std::nullopt);
  transfers.fail_late();
  EXPECT_EQ(state(), State::kOffered) << "it missed the deadline by its own fault";
}

TEST_F(PhaseTransfersTest, WhatGetsNoRoomInTimeFailsForThat) {
  offer();
  ASSERT_TRUE(open(kNoRoomNow));
  transfers.fail_late();
  ASSERT_EQ(state(), State::kFailed);
  EXPECT_EQ(tasks.find(kTask)->failure->code(), kNoRoom);
}

TEST_F(PhaseTransfersTest, WhatWillNeverHaveRoomEndsTheTask) {
  offer();
  const auto done = open(rejected("upload-too-large", "larger than the spool"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), "upload-too-large");
  EXPECT_EQ(transfers.next_deadline(), std::nullopt);
}

TEST_F(PhaseTransfersTest, AFullDiskIsSaidOnceAPhase) {
  offer();
  ASSERT_TRUE(open(overloaded("disk-full", "no space left")));
  ASSERT_EQ(did<Say>().size(), 1U);
  EXPECT_EQ(did<Say>()[0].line, "[round 1/2] updates wait for the disk: no space left");
  ASSERT_TRUE(open(overloaded("disk-full", "no space left")));
  EXPECT_TRUE(did<Say>().empty());
}

TEST_F(PhaseTransfersTest, OneThatStalledIsSummedOnceItWasOfferedAgain) {
  offer();
  ASSERT_TRUE(open(0));
  chunk(0, 20);
  turn.actions.clear();
  transfers.handle(UploadStalled{kTask});
  EXPECT_EQ(closed_because(), kUploadStalled);
  EXPECT_EQ(state(), State::kAsked);
  connect();
  chunk(20, 20);
  EXPECT_TRUE(turn.actions.empty()) << "its room is gone";
  offer();
  ASSERT_TRUE(open(0));
  for (std::uint64_t at = 0; at < kUpdateBytes; at += 20) chunk(at, 20);
  EXPECT_EQ(did<SumUpload>().size(), 1U);
}

TEST_F(PhaseTransfersTest, OneThatStalledWhileItWaitedForRoomIsNotTriedAgain) {
  offer();
  ASSERT_TRUE(open(kNoRoomNow));
  transfers.handle(UploadStalled{kTask});
  turn.now += options.upload_retry;
  transfers.retry_uploads();
  EXPECT_TRUE(did<OpenUpload>().empty());
}

// --- cuts ---------------------------------------------------------------------------------------

// The client's connection breaks after the messages of these numbers. What was written stays.
void send_update_cut_after(const std::set<std::size_t>& cuts) {
  PhaseTransfersRig rig;
  std::uint64_t written = 0;
  std::size_t sums = 0;
  for (std::size_t message = 1; sums == 0; ++message) {
    ASSERT_LT(message, 30U) << "it gets nowhere";
    if (rig.state() == State::kAsked) {
      rig.offer();
      ASSERT_TRUE(rig.open(written));
      ASSERT_EQ(rig.sent<protocol::UpdateAccept>().size(), 1U);
    } else {
      rig.chunk(written, 20);
      ASSERT_EQ(rig.did<WriteUpload>().size(), 1U);
      EXPECT_EQ(rig.did<WriteUpload>()[0].offset, written);
      written += 20;
    }
    sums += rig.did<SumUpload>().size();
    if (!cuts.contains(message)) continue;
    rig.disconnect();
    rig.connect();
  }
  EXPECT_EQ(written, kUpdateBytes);
  EXPECT_EQ(rig.tasks.bytes_in(), kUpdateBytes);
  EXPECT_EQ(rig.state(), State::kSumming);
}

TEST(PhaseTransfers, CutAfterAnyTwoMessagesAnUpdateIsSummedOnceAndWhole) {
  for (std::size_t first = 1; first <= 7; ++first) {
    for (std::size_t second = first; second <= 8; ++second) {
      SCOPED_TRACE(::testing::Message() << "cut after " << first << " and " << second);
      send_update_cut_after({first, second});
    }
  }
}

TEST(PhaseTransfers, CutAfterAnyPieceAModelGoesOnWhereItBroke) {
  for (std::uint64_t cut = 1; cut <= 4; ++cut) {
    SCOPED_TRACE(cut);
    PhaseTransfersRig rig;
    std::uint64_t received = 0;
    for (std::uint64_t piece = 1; received < 40; ++piece) {
      ASSERT_LT(piece, 10U) << "it gets nowhere";
      rig.turn.actions.clear();
      if (piece == 1 || piece == cut + 1) {
        rig.transfers.receive(rig.session, protocol::ModelRequest{kTask, received, received + 10});
      } else {
        rig.transfers.receive(rig.session, protocol::Credit{kTask, received + 10});
      }
      ASSERT_EQ(rig.sent<protocol::Chunk>().size(), 1U);
      EXPECT_EQ(rig.sent<protocol::Chunk>()[0].offset, received);
      received += 10;
      if (piece != cut) continue;
      rig.disconnect();
      rig.connect();
    }
    EXPECT_EQ(rig.tasks.bytes_out(), 40U);
  }
}

}  // namespace
}  // namespace starling::coordinator

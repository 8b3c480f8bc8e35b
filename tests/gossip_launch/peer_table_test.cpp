// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/peer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/base/word_wrap.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StoppedClock final : public Clock {
 public:
  TimePoint now() const override { return time; }
  WallTime wall_now() const override { return {}; }
  TimePoint time;
};

std::vector<PeerRow> rows(std::size_t count) {
  std::vector<PeerRow> rows;
  for (std::size_t i = 0; i < count; ++i) {
    rows.push_back({.name = "node-" + std::to_string(i + 1), .state = "training", .step = 100});
  }
  return rows;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(PeerTable, ShowsEveryPeerAndASummary) {
  auto peers = rows(3);
  peers[1] = {.name = "node-2",
              .state = "waiting",
              .step = 90,
              .neighbours = 1,
              .expected = 2,
              .loss = 0.51234,
              .distance = 1.5,
              .bytes_sent = 38'400'000,
              .bytes_received = 999};
  EXPECT_EQ(peer_table(peers, 80, 24),
            "NODE    STATE     STEP  NEIGHBOURS    LOSS  DISTANCE     SENT  RECEIVED\n"
            "node-1  training   100         0/0       -         -      0 B       0 B\n"
            "node-2  waiting     90         1/2  0.5123       1.5  38.4 MB     999 B\n"
            "node-3  training   100         0/0       -         -      0 B       0 B\n"
            "3 peers: 2 training, 1 waiting  steps 90 to 100  sent 38.4 MB\n");
}

TEST(PeerTable, UnusualPeersComeFirstWhereThereIsNoRoomForAll) {
  auto peers = rows(100);
  peers[70].state = "down";
  peers[40].step = 7;
  const auto lines = lines_of(peer_table(peers, 120, 6));
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_THAT(lines[1], StartsWith("node-1 "));
  EXPECT_THAT(lines[2], StartsWith("node-2 "));
  EXPECT_THAT(lines[3], StartsWith("node-41 "));
  EXPECT_THAT(lines[4], StartsWith("node-71 "));
  EXPECT_EQ(lines[5], "100 peers: 1 down, 99 training  steps 7 to 100  sent 0 B  96 not shown");
}

TEST(PeerTable, NoLineIsWiderOrMoreThanThereIsRoom) {
  for (const std::size_t columns : {20U, 40U, 79U}) {
    for (const std::size_t lines_max : {3U, 4U, 17U}) {
      const auto lines = lines_of(peer_table(rows(16), columns, lines_max));
      EXPECT_LE(lines.size(), lines_max);
      for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns);
    }
  }
}

TEST(PeerTable, AStateOfAPeersOwnCannotSteerTheTerminal) {
  auto peers = rows(1);
  peers[0].state = "\x1b[2J";
  EXPECT_THAT(peer_table(peers, 80, 24), Not(HasSubstr("\x1b")));
}

TEST(PeerTable, IsEmptyWithoutPeers) { EXPECT_EQ(peer_table({}, 80, 24), ""); }

class LiveTableTest : public ::testing::Test {
 protected:
  std::string take() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }
  StoppedClock clock_;
  std::ostringstream out_;
  telemetry::Terminal terminal_{.interactive = true, .columns = 81, .rows = 25};
};

TEST_F(LiveTableTest, RedrawsInPlace) {
  LiveTable table(out_, clock_, terminal_);
  table.show(rows(2));
  EXPECT_EQ(take(), peer_table(rows(2), 80, 24));
  table.show(rows(3));
  EXPECT_EQ(take(), "") << "not so soon";
  clock_.time += std::chrono::milliseconds(250);
  table.show(rows(3));
  EXPECT_EQ(take(), "\x1b[4A\r\x1b[J" + peer_table(rows(3), 80, 24));
}

// The run may end before the next table is due.
TEST_F(LiveTableTest, TheLastTableIsOfTheEnd) {
  LiveTable table(out_, clock_, terminal_);
  table.show(rows(2));
  table.show(rows(3));
  take();
  table.finish();
  EXPECT_EQ(take(), "\x1b[4A\r\x1b[J" + peer_table(rows(3), 80, 24));
  table.finish();
  EXPECT_EQ(take(), "") << "it stands there";
}

TEST_F(LiveTableTest, LinesStandAboveIt) {
  LiveTable table(out_, clock_, terminal_);
  table.print("before");
  EXPECT_EQ(take(), "before\n");
  table.show(rows(1));
  take();
  table.print("[step 1/2] loss");
  EXPECT_EQ(take(), "\x1b[3A\r\x1b[J[step 1/2] loss\n" + peer_table(rows(1), 80, 24));
}

TEST_F(LiveTableTest, ElsewhereThereAreOnlyTheLines) {
  terminal_.interactive = false;
  LiveTable table(out_, clock_, terminal_);
  EXPECT_FALSE(table.is_due());
  table.show(rows(2));
  table.print("line");
  EXPECT_EQ(take(), "line\n");
}

}  // namespace
}  // namespace starling::gossip

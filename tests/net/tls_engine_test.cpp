// SPDX-License-Identifier: Apache-2.0
// TLS without a socket: the test carries the bytes, in whatever pieces, and may change them.
#include "core/net/tls_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/identity/certificate_authority.h"
#include "core/net/record_writer.h"
#include "tests/net/loopback.h"

namespace starling::net {
namespace {

using testing::kNow;
using Status = TlsEngine::Status;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

TEST(ByteQueue, AParkedQueueHoldsItsContentAndNoBuffer) {
  BufferPool pool(8);
  ByteQueue queue(pool);
  const auto append = [&](std::string_view text) {
    const MutableByteView space = queue.space();
    ASSERT_GE(space.size(), text.size());
    std::ranges::copy(as_bytes(text), space.begin());
    queue.commit(text.size());
  };
  queue.park();
  EXPECT_TRUE(queue.empty()) << "nothing to park";
  append("abcdef");
  queue.consume(2);
  queue.park();
  EXPECT_EQ(pool.borrowed(), 0U);
  EXPECT_EQ(as_text(queue.view()), "cdef");
  queue.park();
  queue.consume(1);
  EXPECT_EQ(as_text(queue.view()), "def");
  append("ghijk");
  EXPECT_EQ(as_text(queue.view()), "defghijk")
      << "the parked bytes stand at the buffer's beginning";
  queue.park();
  queue.consume(8);
  queue.release();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(pool.borrowed(), 0U);
}

class TlsEngineTest : public ::testing::Test {
 public:
  TlsEngineTest() { reset(); }

  void reset() {
    server.emplace(*TlsContext::make_server(
                       hub, {{.protocol = Protocol::kSession, .client = testing::client_policy()}}),
                   pool, "");
    client.emplace(testing::client_tls(device), pool, "127.0.0.1");
    server_status = client_status = Status::kWantsInput;
  }

  // Up to `bytes` from the one's output to the other's input, which must be empty.
  static std::size_t carry(TlsEngine& from, TlsEngine& to, std::size_t bytes = kAll) {
    const ByteView output = from.output().view();
    const MutableByteView space = to.input().space();
    const std::size_t count = std::min({output.size(), space.size(), bytes});
    std::copy_n(output.begin(), count, space.begin());
    to.input().commit(count);
    from.output().consume(count);
    return count;
  }

  // Drives both ends, `piece` bytes at a time, until neither has anything to say.
  void shake_hands(std::size_t piece = kAll) {
    client_status = client->handshake();
    for (;;) {
      const std::size_t to_server = carry(*client, *server, piece);
      if (to_server > 0 && server_status == Status::kWantsInput)
        server_status = server->handshake();
      const std::size_t to_client = carry(*server, *client, piece);
      if (to_client > 0 && client_status == Status::kWantsInput)
        client_status = client->handshake();
      if (to_server + to_client == 0) return;
    }
  }

  std::string read_text(TlsEngine& engine) {
    std::array<std::byte, 100> into{};
    const auto [status, bytes] = engine.read(into);
    if (status != Status::kDone) return "?";
    return std::string(as_text(ByteView(into).first(bytes)));
  }

  identity::CertificateAuthority authority =
      *identity::CertificateAuthority::make({.federation = "kitchen"}, kNow);
  identity::Credentials hub = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "hub", .addresses = {"127.0.0.1"}}, kNow);
  identity::Credentials device = *authority.issue_credentials({.name = "cam-7"}, kNow);
  BufferPool pool{256 * 1024};
  std::optional<TlsEngine> server;
  std::optional<TlsEngine> client;
  Status server_status = Status::kWantsInput;
  Status client_status = Status::kWantsInput;
};

TEST_F(TlsEngineTest, ShakesHandsWhateverThePieces) {
  for (std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, kAll}) {
    reset();
    shake_hands(piece);
    EXPECT_EQ(server_status, Status::kDone) << piece;
    EXPECT_EQ(client_status, Status::kDone) << piece;
    EXPECT_EQ(server->peer()->identity.name, "cam-7");
    EXPECT_EQ(client->peer()->identity.name, "hub");
  }
}

TEST_F(TlsEngineTest, OneCallTakesNoMoreThanSomeRecordsWithoutData) {
  shake_hands();
  const std::uint64_t before = server->dataless_records();
  for (int i = 0; i < 100; ++i) {
    client->renew_keys();
    ASSERT_EQ(client->handshake(), Status::kDone);  // sends them
  }
  ASSERT_TRUE(client->write(as_bytes("x")));
  carry(*client, *server);
  std::array<std::byte, 100> into{};
  for (unsigned i = 1; i <= 3; ++i) {
    EXPECT_EQ(server->read(into).status, Status::kSpent);
    EXPECT_LE(server->dataless_records(), before + 32 * i);
  }
  EXPECT_EQ(read_text(*server), "x");
  EXPECT_EQ(server->dataless_records(), before + 100);
}

TEST_F(TlsEngineTest, IdleEndsHoldNoBuffer) {
  shake_hands();
  client->input().release();
  client->output().release();
  server->input().release();
  server->output().release();
  EXPECT_EQ(pool.borrowed(), 0U);
}

TEST_F(TlsEngineTest, CarriesBytesBothWays) {
  shake_hands();
  ASSERT_TRUE(client->write(as_bytes("hello")));
  ASSERT_TRUE(server->write(as_bytes("welcome")));
  carry(*client, *server);
  carry(*server, *client);
  EXPECT_EQ(read_text(*server), "hello");
  EXPECT_EQ(read_text(*client), "welcome");
  std::array<std::byte, 8> more{};
  EXPECT_EQ(server->read(more).status, Status::kWantsInput);
}

TEST_F(TlsEngineTest, RenewsItsKeysBetweenTwoBytes) {
  shake_hands();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client->write(as_bytes("before")));
    client->renew_keys();
    ASSERT_TRUE(client->write(as_bytes("after")));
    carry(*client, *server);
    EXPECT_EQ(read_text(*server), "before");
    EXPECT_EQ(read_text(*server), "after");
  }
}

TEST_F(TlsEngineTest, TellsAGoodbyeFromABreak) {
  shake_hands();
  std::array<std::byte, 8> into{};
  client->shut_down();
  carry(*client, *server);
  EXPECT_EQ(server->read(into).status, Status::kClosed);

  client->end_input();
  EXPECT_EQ(client->read(into).status, Status::kFailed);
  EXPECT_EQ(client->error().code(), "connection-lost");
}

TEST_F(TlsEngineTest, NoticesEveryChangedByte) {
  shake_hands();
  ASSERT_TRUE(client->write(as_bytes("hello")));
  const std::size_t size = client->output().size();
  for (std::size_t i = 0; i < size; ++i) {
    reset();
    shake_hands();
    ASSERT_TRUE(client->write(as_bytes("hello")));
    carry(*client, *server);
    MutableByteView record(const_cast<std::byte*>(server->input().view().data()), size);
    record[i] ^= std::byte{1};
    std::array<std::byte, 8> into{};
    const auto [status, bytes] = server->read(into);
    EXPECT_NE(status, Status::kDone) << "byte " << i;
    EXPECT_EQ(bytes, 0U);
  }
}

TEST_F(TlsEngineTest, PacksSmallAndLargePiecesIntoFullRecords) {
  shake_hands();
  constexpr std::size_t kRecord = RecordWriter::kRecordBytes;
  constexpr std::size_t kOverhead = 22;  // head 5, type 1, tag 16
  const Bytes large(4 * kRecord, std::byte{7});
  const Bytes small(100, std::byte{8});
  RecordWriter writer(*client);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(writer.append(small));
    ASSERT_TRUE(writer.append(large));
  }
  ASSERT_TRUE(writer.flush());
  const std::size_t total = 2 * (small.size() + large.size());
  EXPECT_EQ(client->output().size(), total + (total / kRecord + 1) * kOverhead);
  carry(*client, *server);
  Bytes received(total + 1);
  std::size_t filled = 0;
  while (filled < total) {
    const auto [status, bytes] = server->read(MutableByteView(received).subspan(filled));
    ASSERT_EQ(status, Status::kDone);
    filled += bytes;
  }
  const auto at = [&](std::size_t from, std::size_t to, std::byte value) {
    return std::all_of(received.begin() + static_cast<std::ptrdiff_t>(from),
                       received.begin() + static_cast<std::ptrdiff_t>(to),
                       [&](std::byte b) { return b == value; });
  };
  EXPECT_TRUE(at(0, 100, std::byte{8}) && at(100, total / 2, std::byte{7}));
  EXPECT_TRUE(at(total / 2, total / 2 + 100, std::byte{8}));
  EXPECT_TRUE(at(total / 2 + 100, total, std::byte{7}));
}

}  // namespace
}  // namespace starling::net

// SPDX-License-Identifier: Apache-2.0
#include "core/link/relayed_frame.h"

#include <gtest/gtest.h>

#include "core/link/message_link.h"
#include "core/wire/codec.h"

namespace starling::link {
namespace {

const MessageLimits kGreeted(wire::from_peer(true));
const MessageLimits kBefore(wire::from_peer(false));

std::string code_of(const Result<protocol::Envelope>& result) {
  return result ? "" : std::string(result.error().code());
}

TEST(RelayedFrame, ThereAndBack) {
  const protocol::Chunk chunk{TaskId(7), 4096};
  const SharedBytes payload = SharedBytes::own(Bytes(1000, std::byte{3}));
  const auto relay = to_relay("node-02", chunk);
  ASSERT_TRUE(relay);
  EXPECT_EQ(relay->peer, "node-02");
  EXPECT_EQ(frame_bytes(*relay, payload), 8 + relay->header.size() + 1000);
  const auto back = from_relay(*relay, payload, kGreeted);
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<protocol::Chunk>(back->message), chunk);
  EXPECT_EQ(back->payload.view().data(), payload.view().data()) << "not copied";
}

TEST(RelayedFrame, IsHeldToTheLimitsOfAPeer) {
  const auto swim = *to_relay("b", protocol::Swim{});
  const auto hello = *to_relay("b", protocol::PeerHello{});
  EXPECT_EQ(code_of(from_relay(swim, {}, kGreeted)), "");
  EXPECT_EQ(code_of(from_relay(swim, {}, kBefore)), "unexpected-frame");
  EXPECT_EQ(code_of(from_relay(hello, {}, kBefore)), "");

  protocol::Relay other = swim;
  for (const int type : {0, 1, 26, 30, 999, 65535}) {  // 26: a relay in a relay
    other.type = static_cast<std::uint16_t>(type);
    EXPECT_EQ(code_of(from_relay(other, {}, kGreeted)), "unexpected-frame") << type;
  }
  const auto one = SharedBytes::own(Bytes(1));
  EXPECT_EQ(code_of(from_relay(swim, one, kGreeted)), "payload-too-large");
  const auto chunk = *to_relay("b", protocol::Chunk{TaskId(1), 0});
  const auto large = SharedBytes::own(Bytes(protocol::kChunkBytesMax + 1));
  EXPECT_EQ(code_of(from_relay(chunk, large, kGreeted)), "payload-too-large");
  protocol::Relay long_header = swim;
  long_header.header.resize(40 * 1024);
  EXPECT_EQ(code_of(from_relay(long_header, {}, kGreeted)), "header-too-large");
}

TEST(RelayedFrame, RefusesAHeaderThatIsNone) {
  protocol::Relay hello = *to_relay("b", protocol::PeerHello{});
  hello.header.assign(64, std::byte{0xff});
  EXPECT_EQ(code_of(from_relay(hello, {}, kBefore)), "bad-message");
  hello.header.clear();
  EXPECT_EQ(code_of(from_relay(hello, {}, kBefore)), "bad-message");
}

}  // namespace
}  // namespace starling::link

// SPDX-License-Identifier: Apache-2.0
// Every message comes back as it was, whatever it holds; words for people come back fit for a
// terminal.
#include <gtest/gtest.h>

#include "core/base/escape_controls.h"
#include "core/wire/bounds.h"
#include "core/wire/codec.h"
#include "tests/wire/random_message.h"
#include "tests/wire/sample_messages.h"

namespace starling::wire {
namespace {

Result<protocol::Message> there_and_back(const protocol::Message& message) {
  STARLING_ASSIGN(const Bytes header, encode_header(message));
  const auto type = static_cast<std::uint16_t>(frame_type(message));
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_LE(header.size(), bound_of(frame_type(message)).header_words_max * 8U);
  return decode_header(type, header);
}

TEST(RoundTrip, EachSampleComesBack) {
  for (const testing::Sample& sample : testing::sample_messages()) {
    const auto back = there_and_back(sample.message);
    ASSERT_TRUE(back) << sample.name << ": " << back.error().message();
    EXPECT_EQ(*back, sample.message) << sample.name;
  }
}

// What people read has no control characters any more.
constexpr auto cleaned = [](auto message) -> protocol::Message {
  using Message = decltype(message);
  if constexpr (std::is_same_v<Message, protocol::Bye> ||
                std::is_same_v<Message, protocol::TaskEnded> ||
                std::is_same_v<Message, protocol::TaskFailed> ||
                std::is_same_v<Message, protocol::OperatorReply>) {
    message.code = escape_controls(message.code);
    message.message = escape_controls(message.message);
  }
  if constexpr (requires { message.software; }) {
    message.software = escape_controls(message.software);
  }
  if constexpr (std::is_same_v<Message, protocol::PeerReport>) {
    message.state = escape_controls(message.state);
    message.problem = escape_controls(message.problem);
  }
  return message;
};

TEST(RoundTrip, AGoodbyeCannotPretendToBeAnotherLine) {
  const auto back = there_and_back(protocol::Bye{"bye\n", "\x1b[2K\rcam-8 joined"});
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<protocol::Bye>(*back), (protocol::Bye{"bye\\n", "\\x1b[2K\\rcam-8 joined"}));
}

TEST(RoundTrip, ARefusalCannotSteerTheOperatorsTerminal) {
  const auto back = there_and_back(
      protocol::OperatorReply{.id = 7, .code = "run-unknown", .message = "\x1b]0;x\a no run"});
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<protocol::OperatorReply>(*back).message, "\\x1b]0;x\\x07 no run");
}

class RandomRoundTrip : public ::testing::TestWithParam<int> {};

TEST_P(RandomRoundTrip, ComesBack) {
  const auto type = static_cast<FrameType>(GetParam());
  for (std::uint32_t i = 0; i < 500; ++i) {
    const StreamKey key{.seed = 1, .node = static_cast<std::uint64_t>(GetParam()), .round = i};
    Rng rng(key);
    const protocol::Message message = testing::random_message(type, rng);
    ASSERT_EQ(frame_type(message), type);
    const auto back = there_and_back(message);
    ASSERT_TRUE(back) << "seed 1, round " << i << ": " << back.error().message();
    ASSERT_EQ(*back, std::visit(cleaned, message)) << "seed 1, round " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EachType, RandomRoundTrip, ::testing::Range(1, kFrameTypeMax + 1),
                         [](const auto& param_info) {
                           return std::string(to_string(static_cast<FrameType>(param_info.param)));
                         });

TEST(RoundTrip, EncodingIsAFunctionOfTheMessage) {
  for (const testing::Sample& sample : testing::sample_messages()) {
    EXPECT_EQ(*encode_header(sample.message), *encode_header(sample.message)) << sample.name;
  }
}

TEST(FrameTypes, NumbersAreKnownExactlyUpToTheLast) {
  EXPECT_FALSE(known_frame_type(0));
  for (std::uint16_t number = 1; number <= kFrameTypeMax; ++number) {
    EXPECT_EQ(static_cast<std::uint16_t>(*known_frame_type(number)), number);
  }
  EXPECT_FALSE(known_frame_type(kFrameTypeMax + 1));
  EXPECT_EQ(kFrameTypeMax, std::variant_size_v<protocol::AnyMessage>);
}

TEST(FrameTypes, EachAlternativeHasANumberAndAName) {
  std::set<FrameType> types;
  std::set<std::string_view> names;
  for (const testing::Sample& sample : testing::sample_messages()) {
    types.insert(frame_type(sample.message));
    names.insert(to_string(frame_type(sample.message)));
  }
  EXPECT_EQ(types.size(), std::variant_size_v<protocol::AnyMessage>);
  EXPECT_EQ(names.size(), std::variant_size_v<protocol::AnyMessage>);
}

}  // namespace
}  // namespace starling::wire

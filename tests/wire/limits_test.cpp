// SPDX-License-Identifier: Apache-2.0
// What is at its limit travels; what is beyond is refused by name, by the sender already, and by
// the receiver where a sender did not care.
#include "core/wire/limits.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/base/utf8.h"
#include "core/wire/bounds.h"
#include "core/wire/codec.h"
#include "tests/wire/raw_message.h"
#include "tests/wire/sample_messages.h"

namespace starling::wire {
namespace {

using starling::testing::RawMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Message>
Message sample() {
  for (const auto& sample : starling::testing::sample_messages()) {
    if (const auto* message = std::get_if<Message>(&sample.message)) return *message;
  }
  ADD_FAILURE() << "no sample";
  return {};
}

// The sample with a change: "" if it travels unharmed, else the sender's reason code.
template <class Message>
std::string verdict(const std::function<void(Message&)>& change) {
  Message message = sample<Message>();
  change(message);
  const auto header = encode_header(message);
  if (!header) return header.error().code();
  const auto back = decode_header(static_cast<std::uint16_t>(frame_type(message)), *header);
  if (!back) return "sent, but refused: " + back.error().message();
  return *back == protocol::Message(message) ? "" : "changed";
}

using protocol::Bye;
using protocol::Hello;
using protocol::OperatorRequest;
using protocol::RoundPlan;
using protocol::UpdateOffer;
using protocol::Welcome;

TEST(Limits, NamesHave128Bytes) {
  const std::string longest(128, 'n'), longer(129, 'n');
  const auto both = [&](auto member_of) {
    return std::pair(member_of(longest), member_of(longer));
  };
  const std::pair<std::string, std::string> expected("", "message-too-large");
  EXPECT_EQ(both([](const std::string& name) {
              return verdict<Hello>([&](Hello& m) { m.software = name; });
            }),
            expected);
  EXPECT_EQ(both([](const std::string& name) {
              return verdict<Welcome>([&](Welcome& m) { m.federation = m.client = name; });
            }),
            expected);
  EXPECT_EQ(both([](const std::string& name) {
              return verdict<RoundPlan>([&](RoundPlan& m) { m.run_name = name; });
            }),
            expected);
  EXPECT_EQ(both([](const std::string& name) {
              return verdict<RoundPlan>([&](RoundPlan& m) { m.schema.vectors[1].name = name; });
            }),
            expected);
  EXPECT_EQ(both([](const std::string& name) {
              return verdict<UpdateOffer>([&](UpdateOffer& m) { m.head.scalars[name] = 1; });
            }),
            expected);
  EXPECT_EQ(both([](const std::string& name) {
              return verdict<OperatorRequest>([&](OperatorRequest& m) { m.command = name; });
            }),
            expected);
  EXPECT_EQ(
      both([](const std::string& name) { return verdict<Bye>([&](Bye& m) { m.code = name; }); }),
      expected);
}

TEST(Limits, SettingsAre256OfKeyAndValue) {
  const auto with = [](std::size_t count, std::size_t key_bytes, std::size_t value_bytes) {
    const std::pair setting(std::string(key_bytes, 'k'), std::string(value_bytes, 'v'));
    return verdict<RoundPlan>([&](RoundPlan& m) { m.settings.assign(count, setting); });
  };
  EXPECT_EQ(with(256, 20, 20), "");
  EXPECT_EQ(with(257, 20, 20), "message-too-large");
  EXPECT_EQ(with(1, 128, 16 * 1024), "");
  EXPECT_EQ(with(1, 129, 1), "message-too-large");
  EXPECT_EQ(with(1, 1, 16 * 1024 + 1), "message-too-large");
}

TEST(Limits, AHeaderHas64KiB) {
  const auto with_values = [](std::size_t count, std::size_t bytes) {
    const std::pair setting(std::string(7, 'k'), std::string(bytes, 'v'));
    OperatorRequest request{1, "", Settings(count, setting)};
    return encode_header(request);
  };
  // Words: table, root, id, 2 pointers, the command's zero, tag; and 2 + 1 + 128 of each setting.
  const std::size_t rest = 8192 - 7 - 62 * 131;
  EXPECT_EQ(with_values(62, 1023)->size(), (7 + 62 * 131) * 8U);
  const std::size_t fitting = (rest - 3) * 8 - 1;
  auto fill = [&](std::size_t bytes) {
    OperatorRequest request{1, "", Settings(62, {std::string(7, 'k'), std::string(1023, 'v')})};
    request.arguments.emplace_back(std::string(7, 'k'), std::string(bytes, 'v'));
    return encode_header(request);
  };
  ASSERT_EQ(fill(fitting)->size(), 64 * 1024U);
  EXPECT_TRUE(decode_header(16, *fill(fitting)));
  EXPECT_EQ(fill(fitting + 1).error().code(), "message-too-large");
  EXPECT_EQ(with_values(256, 1024).error().code(), "message-too-large");
}

TEST(Limits, TheLargestOfEachOtherTypeFitItsBound) {
  const std::string name(kNameBytesMax, 'n'), sentence(kSentenceBytesMax, 's');
  const TaskId task(~std::uint64_t{0});
  const std::vector<update::VectorSpec> vectors(
      kVectorsMax, {name, update::Encoding::kFloat32Delta, kElementsMax});
  update::ContributionHead head{.task = task, .vectors = vectors};
  for (std::size_t i = 0; i < kScalarsMax; ++i)
    head.scalars[std::to_string(100 + i) + name.substr(3)] = 1;
  for (const protocol::Message& message : std::initializer_list<protocol::Message>{
           Hello{1, 1, name, 1}, Welcome{1, name, name, kHeartbeatMax, 1}, UpdateOffer{head},
           protocol::TaskEnded{task, name, sentence}, protocol::TaskFailed{task, name, sentence},
           Bye{name, sentence}, protocol::OperatorReply{1, true, name, sentence}}) {
    const auto header = encode_header(message);
    ASSERT_TRUE(header) << header.error().message();
    const std::size_t bound = bound_of(frame_type(message)).header_words_max * 8U;
    EXPECT_LE(header->size() + 128, bound) << "no room for what later versions add";
  }
}

TEST(Limits, VectorsAndScalarsAreCounted) {
  const update::VectorSpec vector{"v", update::Encoding::kFloat32Delta, 1};
  const auto with_vectors = [&](std::size_t count) {
    return verdict<UpdateOffer>([&](UpdateOffer& m) { m.head.vectors.assign(count, vector); });
  };
  EXPECT_EQ(with_vectors(256), "");
  EXPECT_EQ(with_vectors(257), "message-too-large");
  const auto with_scalars = [&](int count) {
    return verdict<UpdateOffer>([&](UpdateOffer& m) {
      m.head.scalars.clear();
      for (int i = 0; i < count; ++i) m.head.scalars[std::to_string(i)] = i;
    });
  };
  EXPECT_EQ(with_scalars(64), "");
  EXPECT_EQ(with_scalars(65), "message-too-large");
}

TEST(Limits, SizesAndOffsets) {
  const auto elements = [](std::uint64_t count) {
    return verdict<UpdateOffer>([&](UpdateOffer& m) { m.head.vectors[0].elements = count; });
  };
  EXPECT_EQ(elements(kElementsMax), "");
  EXPECT_EQ(elements(kElementsMax + 1), "bad-message");
  for (std::uint64_t bytes : {kBulkBytesMax, kBulkBytesMax + 1, ~std::uint64_t{0}}) {
    const std::string expected = bytes == kBulkBytesMax ? "" : "bad-message";
    EXPECT_EQ(verdict<UpdateOffer>([&](auto& m) { m.head.vectors[0].bytes = bytes; }), expected);
    using namespace protocol;
    EXPECT_EQ(verdict<RoundPlan>([&](auto& m) { m.model_bytes = bytes; }), expected);
    EXPECT_EQ(verdict<ModelRequest>([&](auto& m) { m.offset = bytes; }), expected);
    EXPECT_EQ(verdict<ModelRequest>([&](auto& m) { m.limit = bytes; }), expected);
    EXPECT_EQ(verdict<Chunk>([&](auto& m) { m.offset = bytes; }), expected);
    EXPECT_EQ(verdict<Credit>([&](auto& m) { m.limit = bytes; }), expected);
    EXPECT_EQ(verdict<UpdateOffer>([&](auto& m) { m.head.payload_bytes = bytes; }), expected);
    EXPECT_EQ(verdict<UpdateAccept>([&](auto& m) { m.offset = bytes; }), expected);
    EXPECT_EQ(verdict<UpdateAccept>([&](auto& m) { m.limit = bytes; }), expected);
  }
}

TEST(Limits, DurationsAreInRange) {
  const auto heartbeat = [](Duration value) {
    return verdict<Welcome>([&](Welcome& m) { m.heartbeat = value; });
  };
  EXPECT_EQ(heartbeat(kHeartbeatMin), "");
  EXPECT_EQ(heartbeat(kHeartbeatMin - Duration(1)), "bad-message");
  EXPECT_EQ(heartbeat(kHeartbeatMax), "");
  EXPECT_EQ(heartbeat(kHeartbeatMax + Duration(1)), "bad-message");
  const auto deadline = [](Duration value) {
    return verdict<RoundPlan>([&](RoundPlan& m) { m.deadline = value; });
  };
  EXPECT_EQ(deadline(Duration::zero()), "");
  EXPECT_EQ(deadline(Duration(-1)), "bad-message");
  EXPECT_EQ(deadline(kDeadlineMax), "");
  EXPECT_EQ(deadline(Duration::max()), "bad-message");
  EXPECT_EQ(deadline(Duration::min()), "bad-message");
}

TEST(Limits, IdsAndCountsStartAtOne) {
  const auto plan = [](const std::function<void(RoundPlan&)>& change) {
    return verdict<RoundPlan>(change);
  };
  EXPECT_EQ(plan([](RoundPlan& m) { m.task = TaskId(0); }), "bad-message");
  EXPECT_EQ(plan([](RoundPlan& m) { m.run = RunId(0); }), "bad-message");
  EXPECT_EQ(plan([](RoundPlan& m) { m.round = 0; }), "bad-message");
  EXPECT_EQ(plan([](RoundPlan& m) { m.attempt = 0; }), "bad-message");
  EXPECT_EQ(plan([](RoundPlan& m) { m.round = m.rounds; }), "");
  EXPECT_EQ(plan([](RoundPlan& m) { m.round = m.rounds + 1; }), "bad-message");
  EXPECT_EQ(verdict<Hello>([](Hello& m) { m.version_min = 0; }), "bad-message");
  EXPECT_EQ(verdict<Hello>([](Hello& m) { m.version_min = m.version_max + 1; }), "bad-message");
  EXPECT_EQ(verdict<Welcome>([](Welcome& m) { m.version = 0; }), "bad-message");
}

TEST(Limits, BoundsOfARoundArePositiveAndFinite) {
  for (double value : {0.0, -1.0, kInfinity, kNan}) {
    EXPECT_EQ(verdict<RoundPlan>([&](auto& m) { m.schema.bounds.value_max = value; }),
              "bad-message");
    EXPECT_EQ(verdict<RoundPlan>([&](auto& m) { m.schema.bounds.weight_max = value; }),
              "bad-message");
  }
  EXPECT_EQ(verdict<RoundPlan>([](auto& m) { m.schema.bounds.contributions_max = 0; }),
            "bad-message");
}

TEST(Limits, TasksAndGreetingsOfThisVersion) {
  EXPECT_EQ(verdict<Hello>([](auto& m) { m.abilities = {"two words"}; }), "bad-message");
  EXPECT_EQ(verdict<Hello>([](auto& m) { m.abilities = {""}; }), "bad-message");
  EXPECT_EQ(
      verdict<Hello>([](auto& m) { m.abilities.assign(kAbilitiesBytesMax / 8 + 1, "abcdefg"); }),
      "message-too-large");
  EXPECT_EQ(verdict<Hello>([](auto& m) { m.abilities.assign(kAbilitiesBytesMax / 8, "abcdefg"); }),
            "");
  EXPECT_EQ(verdict<Hello>([](auto& m) { m.input.assign(kShapeMax + 1, 1); }), "message-too-large");
  EXPECT_EQ(verdict<RoundPlan>([](auto& m) { m.inputs.resize(kInputsMax + 1); }),
            "message-too-large");
  EXPECT_EQ(verdict<RoundPlan>([](auto& m) {
              m.inputs = {{"x", {}, kBulkBytesMax + 1}};
            }),
            "bad-message");
  EXPECT_EQ(verdict<RoundPlan>([](auto& m) { m.kind = static_cast<protocol::TaskKind>(2); }),
            "bad-message");
  EXPECT_EQ(verdict<RoundPlan>([](auto& m) { m.schema.scalars.resize(kScalarsMax + 1); }),
            "message-too-large");
}

// The round's own gate refuses these with a reason that is stored; a closed connection would not.
TEST(Limits, WeightAndScalarsTravelAsTheyAre) {
  for (double value : {0.0, -1.0, kInfinity}) {
    EXPECT_EQ(verdict<UpdateOffer>([&](UpdateOffer& m) { m.head.weight = value; }), "");
    EXPECT_EQ(verdict<UpdateOffer>([&](UpdateOffer& m) { m.head.scalars["x"] = value; }), "");
  }
}

TEST(Limits, AnEncodingOfALaterVersionIsUnsupported) {
  const auto later = static_cast<update::Encoding>(5);
  EXPECT_EQ(verdict<UpdateOffer>([&](auto& m) { m.head.vectors[0].encoding = later; }),
            "unknown-encoding");
  // The same from a peer: the sample's first vector says 1 in its data words.
  Bytes header = *encode_header(
      UpdateOffer{{.task = TaskId(5), .vectors = {{"", update::Encoding::kFloat32Delta, 0xAAAA}}}});
  for (std::size_t at = 8; at < header.size(); at += 8) {
    if (load_little<std::uint64_t>(header.data() + at) == 0xAAAA) {
      store_little<std::uint16_t>(header.data() + at - 8, 5);
    }
  }
  const auto message = decode_header(static_cast<std::uint16_t>(FrameType::kUpdateOffer), header);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), "unknown-encoding");
  EXPECT_EQ(message.error().kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(verdict<RoundPlan>([&](auto& m) {
              m.schema.vectors[0].encoding = later;
              m.inputs = {{"x", {}, 4, later}};
            }),
            "")
      << "the client refuses the task, and not the connection";
}

TEST(Limits, SentencesAreCutAndCleanedToTravel) {
  const Bytes header = *encode_header(Bye{"stopped", std::string(5000, 'x') + "\xFF"});
  const auto message = decode_header(static_cast<std::uint16_t>(FrameType::kBye), header);
  ASSERT_TRUE(message);
  const auto& bye = std::get<Bye>(*message);
  EXPECT_EQ(bye.message, std::string(kSentenceBytesMax - 3, 'x') + "\xE2\x80\xA6");
  const Bytes second = *encode_header(protocol::TaskFailed{TaskId(1), "c", "a\xFFz"});
  const auto failed = decode_header(static_cast<std::uint16_t>(FrameType::kTaskFailed), second);
  EXPECT_EQ(std::get<protocol::TaskFailed>(*failed).message, "a\xEF\xBF\xBDz");
  // What others said may stand in a report.
  const Bytes third = *encode_header(protocol::PeerReport{.problem = std::string(5000, 'x')});
  const auto report = decode_header(static_cast<std::uint16_t>(FrameType::kPeerReport), third);
  ASSERT_TRUE(report);
  EXPECT_EQ(std::get<protocol::PeerReport>(*report).problem.size(), kSentenceBytesMax);
}

TEST(Limits, NamesThatAreNotUtf8AreRefused) {
  EXPECT_EQ(verdict<Bye>([](Bye& m) { m.code = "\xFF"; }), "bad-message");
  EXPECT_EQ(verdict<OperatorRequest>([](auto& m) { m.arguments[0].second = "\xED\xA0\x80"; }),
            "bad-message");
}

// A peer that does not hold itself to the limits: code and message of a Bye, written by hand.
std::string bye_verdict(std::string_view code, std::string_view message) {
  RawMessage raw(0, 2);
  raw.text(1, code);
  raw.text(2, message);
  const auto bye = decode_header(static_cast<std::uint16_t>(FrameType::kBye), raw.header());
  return bye ? "" : bye.error().code();
}

TEST(Limits, TheReceiverIsHeldToThemToo) {
  EXPECT_EQ(bye_verdict(std::string(128, 'c'), std::string(1024, 'm')), "");
  EXPECT_EQ(bye_verdict(std::string(129, 'c'), ""), "bad-message");
  EXPECT_EQ(bye_verdict("", std::string(1025, 'm')), "bad-message");
  EXPECT_EQ(bye_verdict("\xC0\x80", ""), "bad-message");
  EXPECT_EQ(bye_verdict("", "\xFF"), "bad-message");
}

TEST(Limits, ErrorsSayWhatAndHowMuch) {
  const auto header = encode_header(Hello{1, 1, std::string(300, 's'), 1});
  EXPECT_EQ(header.error().message(),
            "cannot send Hello: the software's name has 300 bytes; at most 128 may travel");
}

}  // namespace
}  // namespace starling::wire

// SPDX-License-Identifier: Apache-2.0
#include "tests/wire/random_message.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/wire/limits.h"

namespace starling::testing {
namespace {

using wire::FrameType;

// Magnitudes of every order, both ends often among them.
std::uint64_t random_number(Rng& rng, std::uint64_t min, std::uint64_t max) {
  const std::uint64_t choice = rng.below(8);
  if (choice == 0) return min;
  if (choice == 1) return max;
  const std::uint64_t span = max - min;
  const std::uint64_t value = rng.next_u64() >> rng.below(64);
  return min + (span == ~std::uint64_t{0} ? value : value % (span + 1));
}

std::uint64_t any_number(Rng& rng) { return random_number(rng, 0, ~std::uint64_t{0}); }
std::uint32_t any_number32(Rng& rng, std::uint32_t min = 0) {
  return static_cast<std::uint32_t>(random_number(rng, min, 0xFFFFFFFF));
}
std::uint64_t bulk(Rng& rng) { return random_number(rng, 0, wire::kBulkBytesMax); }
TaskId task(Rng& rng) { return TaskId(random_number(rng, 1, ~std::uint64_t{0})); }
std::string name(Rng& rng) { return random_text(rng, wire::kNameBytesMax); }
std::string sentence(Rng& rng) { return random_text(rng, wire::kSentenceBytesMax); }

Duration duration(Rng& rng, Duration min, Duration max) {
  return Duration(static_cast<std::int64_t>(random_number(
      rng, static_cast<std::uint64_t>(min.count()), static_cast<std::uint64_t>(max.count()))));
}

double positive(Rng& rng) { return std::exp2(rng.uniform(-1000, 1000)); }

// Any finite bit pattern.
double finite(Rng& rng) {
  const double value = std::bit_cast<double>(rng.next_u64());
  return std::isfinite(value) ? value : -0.0;
}

Sha256Digest digest(Rng& rng) {
  std::array<std::byte, Sha256Digest::kBytes> bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256));
  return Sha256Digest(bytes);
}

std::size_t list_size(Rng& rng, std::size_t max) {
  const std::uint64_t choice = rng.below(4);
  if (choice == 0) return 0;
  return static_cast<std::size_t>(rng.below(choice == 1 ? max + 1 : std::min<std::size_t>(max, 8)));
}

// Many settings are short ones, so that the message fits.
Settings settings(Rng& rng) {
  Settings list(list_size(rng, wire::kSettingsMax));
  const bool many = list.size() > 16;
  for (auto& [key, value] : list) {
    key = random_text(rng, many ? 40 : wire::kSettingKeyBytesMax);
    value = random_text(rng, many ? 40 : wire::kSettingValueBytesMax / 16);
  }
  return list;
}

std::vector<update::VectorSpec> vectors(Rng& rng) {
  std::vector<update::VectorSpec> list(list_size(rng, wire::kVectorsMax / 4));
  for (update::VectorSpec& vector : list) {
    vector.name = name(rng);
    vector.elements = random_number(rng, 0, wire::kElementsMax);
    vector.encoding = static_cast<update::Encoding>(1 + rng.below(4));
    vector.bytes = bulk(rng);
  }
  return list;
}

std::map<std::string, double> scalars(Rng& rng) {
  std::map<std::string, double> map;
  const std::size_t size = list_size(rng, wire::kScalarsMax);
  for (std::size_t i = 0; i < size; ++i) map[name(rng)] = finite(rng);
  return map;
}

update::ModelVersion version(Rng& rng) {
  return {RunId(any_number(rng)), any_number32(rng), digest(rng), any_number32(rng)};
}

protocol::RoundPlan round_plan(Rng& rng) {
  protocol::RoundPlan plan;
  plan.task = task(rng);
  plan.run = RunId(random_number(rng, 1, ~std::uint64_t{0}));
  plan.run_name = name(rng);
  plan.round = any_number32(rng, 1);
  plan.rounds = any_number32(rng, plan.round);
  plan.attempt = any_number32(rng, 1);
  plan.seed = any_number(rng);
  plan.base = version(rng);
  plan.model_bytes = bulk(rng);
  plan.settings = settings(rng);
  plan.schema.vectors = vectors(rng);
  plan.schema.bounds = {positive(rng), positive(rng), any_number32(rng, 1)};
  for (std::uint64_t i = rng.below(4); i > 0; --i) plan.schema.scalars.push_back(name(rng));
  plan.deadline = duration(rng, Duration::zero(), wire::kDeadlineMax);
  plan.kind = static_cast<protocol::TaskKind>(rng.below(2));
  for (std::uint64_t i = rng.below(4); i > 0; --i) {
    plan.inputs.push_back(
        {name(rng), digest(rng), bulk(rng), static_cast<update::Encoding>(1 + rng.below(4))});
  }
  return plan;
}

protocol::UpdateOffer update_offer(Rng& rng) {
  update::ContributionHead head;
  head.task = task(rng);
  head.base = version(rng);
  head.weight = finite(rng);
  head.vectors = vectors(rng);
  head.scalars = scalars(rng);
  head.payload_bytes = bulk(rng);
  head.payload_checksum = any_number(rng);
  return {std::move(head)};
}

protocol::Hello hello(Rng& rng) {
  const auto min = static_cast<std::uint16_t>(random_number(rng, 1, 0xFFFF));
  const auto max = static_cast<std::uint16_t>(random_number(rng, min, 0xFFFF));
  protocol::Hello hello{min, max, name(rng), any_number(rng)};
  for (std::uint64_t i = rng.below(8); i > 0; --i) {
    hello.abilities.push_back("word-" + std::to_string(rng.below(1'000'000)));
  }
  for (std::uint64_t i = rng.below(wire::kShapeMax + 1); i > 0; --i) {
    hello.input.push_back(any_number32(rng));
  }
  hello.classes = any_number32(rng);
  hello.held_out = any_number(rng);
  return hello;
}

protocol::Welcome welcome(Rng& rng) {
  return {static_cast<std::uint16_t>(random_number(rng, 1, 0xFFFF)),
          name(rng),
          name(rng),
          duration(rng, wire::kHeartbeatMin, wire::kHeartbeatMax),
          any_number(rng),
          rng.below(2) == 1};
}

protocol::Support support(Rng& rng) {
  return {rng.below(2) == 1, static_cast<std::uint16_t>(random_number(rng, 0, 0xFFFF))};
}

protocol::PeerHello peer_hello(Rng& rng) {
  const auto min = static_cast<std::uint16_t>(random_number(rng, 1, 0xFFFF));
  const auto max = static_cast<std::uint16_t>(random_number(rng, min, 0xFFFF));
  return {min,
          max,
          name(rng),
          any_number(rng),
          any_number(rng),
          rng.below(2) == 1,
          support(rng),
          any_number(rng),
          random_text(rng, wire::kRefusalBytesMax)};
}

protocol::RosterPart roster_part(Rng& rng) {
  const std::uint64_t total = random_number(rng, 0, wire::kRosterBytesMax);
  return {any_number(rng), random_number(rng, 0, total), total, any_number(rng)};
}

protocol::Swim swim(Rng& rng) {
  protocol::Swim message;
  message.kind = static_cast<protocol::Swim::Kind>(rng.below(3));
  message.epoch = any_number(rng);
  message.sequence = any_number(rng);
  message.target = any_number32(rng, 0);
  message.news.resize(list_size(rng, wire::kSwimNewsMax));
  for (protocol::SwimNews& news : message.news) {
    news = {static_cast<protocol::Member>(random_number(rng, 0, wire::kMembersMax - 1)),
            static_cast<protocol::SwimNews::State>(rng.below(3)),
            static_cast<std::uint32_t>(random_number(rng, 0, wire::kIncarnationMax)),
            static_cast<protocol::Member>(random_number(rng, 0, wire::kMembersMax - 1))};
  }
  return message;
}

std::optional<double> scalar(Rng& rng) {
  return rng.below(2) == 1 ? std::optional(finite(rng)) : std::nullopt;
}

protocol::VectorTransfer::Content transfer_content(Rng& rng) {
  const auto floats = [&] { return random_number(rng, 0, wire::kElementsMax); };
  const auto edge = [&] {
    return protocol::Incarnations{any_number32(rng, 0), any_number32(rng, 0)};
  };
  const auto state = [&]() -> decltype(protocol::MixMessage::state) {
    if (rng.below(2) == 0) return edge();
    return protocol::Eras{any_number32(rng, 0), any_number32(rng, 0)};
  };
  switch (rng.below(7)) {
    case 0:
      return protocol::MixMessage{.exchange = any_number(rng),
                                  .state = state(),
                                  .first = floats(),
                                  .second = floats(),
                                  .packed = bulk(rng),
                                  .scalar = scalar(rng)};
    case 1:
      return protocol::PairMessage{.kind = static_cast<protocol::PairMessage::Kind>(rng.below(3)),
                                   .number = any_number(rng),
                                   .edge = edge(),
                                   .phases = bulk(rng),
                                   .floats = floats(),
                                   .packed = bulk(rng),
                                   .scalar = scalar(rng)};
    case 2:
      return protocol::ReducePiece{.exchange = any_number(rng),
                                   .attempt = any_number32(rng, 0),
                                   .place = bulk(rng),
                                   .floats = floats()};
    case 3:
      return protocol::ModelColumns{
          .exchange = any_number(rng), .begin = bulk(rng), .floats = floats()};
    case 4:
      return protocol::Introduction{.edge = edge(), .exchange = any_number(rng)};
    case 5:
      return protocol::Confirmation{.number = any_number(rng), .edge = edge(), .phases = bulk(rng)};
    default:
      return protocol::WholeModel{
          .exchange = any_number(rng), .step = bulk(rng), .floats = floats()};
  }
}

protocol::VectorTransfer transfer(Rng& rng) {
  return {.id = task(rng),
          .epoch = any_number(rng),
          .content = transfer_content(rng),
          .support = support(rng)};
}

protocol::ColumnsAsk columns_ask(Rng& rng) {
  const std::uint64_t begin = random_number(rng, 0, wire::kElementsMax - 1);
  return {any_number(rng), begin, random_number(rng, begin + 1, wire::kElementsMax)};
}

std::vector<protocol::Member> members(Rng& rng) {
  std::vector<protocol::Member> members(list_size(rng, wire::kMembersMax));
  for (protocol::Member& member : members) member = any_number32(rng, 0);
  return members;
}

protocol::NamedMean named_mean(Rng& rng) {
  return {any_number32(rng, 1), members(rng), digest(rng), rng.below(2) == 0};
}

protocol::reduce::Register registration(Rng& rng) {
  protocol::reduce::Register its{.fresh = rng.below(2) == 0};
  if (rng.below(2) == 0) {
    its.held = named_mean(rng);
  } else {
    its.lost = members(rng);
  }
  if (rng.below(2) == 0) {
    its.blame = {any_number32(rng, 0), static_cast<std::uint16_t>(random_number(rng, 1, 0xFFFF)),
                 rng.below(2) == 0};
  }
  return its;
}

protocol::reduce::What what(Rng& rng) {
  using namespace protocol::reduce;
  switch (rng.below(std::variant_size_v<What>)) {
    case 0:
      return registration(rng);
    case 1: {
      List list{.members = members(rng), .weak = rng.below(2) == 0};
      if (rng.below(2) == 0) list.apart = any_number32(rng, 0);
      return list;
    }
    case 2:
      return Standing{named_mean(rng), any_number32(rng, 0)};
    case 3: {
      Done done{.sha256 = digest(rng)};
      if (rng.below(2) == 0) {
        done.waited = {any_number32(rng, 0),
                       static_cast<std::uint16_t>(random_number(rng, 1, 0xFFFF)),
                       any_number32(rng, 0)};
      }
      return done;
    }
    case 4:
      return Commit{members(rng), digest(rng),
                    static_cast<std::uint16_t>(random_number(rng, 0, 0xFFFF)),
                    any_number32(rng, 0)};
    case 5:
      return Want{digest(rng)};
    case 6:
      return NotYet{};
    case 7:
      return Ask{};
    case 8:
      return AskProgress{};
    case 9:
      return Wait{};
    default:
      return Ahead{members(rng)};
  }
}

protocol::ReduceNote reduce_note(Rng& rng) {
  return {.epoch = any_number(rng),
          .at = {.backed = any_number(rng), .exchange = any_number(rng)},
          .attempt = any_number32(rng, 0),
          .what = what(rng)};
}

protocol::PeerReport peer_report(Rng& rng) {
  return {.epoch = any_number(rng),
          .exchange = any_number(rng),
          .step = any_number(rng),
          .state = name(rng),
          .loss = finite(rng),
          .loss_steps = any_number(rng),
          .neighbours = any_number32(rng, 0),
          .expected = any_number32(rng, 0),
          .reachable = any_number32(rng, 0),
          .bytes_sent = any_number(rng),
          .bytes_received = any_number(rng),
          .messages = any_number(rng),
          .problem = sentence(rng),
          .arrived = any_number(rng),
          .late = any_number(rng),
          .lost = any_number(rng),
          .staleness = any_number(rng),
          .linked = any_number32(rng, 0)};
}

}  // namespace

std::string random_text(Rng& rng, std::size_t bytes_max) {
  static constexpr std::array<std::string_view, 14> kCharacters = {"a",
                                                                   "Z",
                                                                   "0",
                                                                   "-",
                                                                   " ",
                                                                   "\"",
                                                                   "\n",
                                                                   "\x1B",
                                                                   "\x7F",
                                                                   std::string_view("\0", 1),
                                                                   "\xC3\xA9",
                                                                   "\xE2\x82\xAC",
                                                                   "\xEF\xBF\xBF",
                                                                   "\xF4\x8F\xBF\xBF"};
  const std::size_t size = rng.below(4) == 0 ? bytes_max : rng.below(bytes_max + 1);
  std::string text;
  while (true) {
    const std::string_view next = kCharacters[rng.below(kCharacters.size())];
    if (text.size() + next.size() > size) return text;
    text += next;
  }
}

protocol::Message random_message(FrameType type, Rng& rng) {
  using namespace protocol;
  switch (type) {
    case FrameType::kHello:
      return hello(rng);
    case FrameType::kWelcome:
      return welcome(rng);
    case FrameType::kRoundPlan:
      return round_plan(rng);
    case FrameType::kModelRequest:
      return ModelRequest{task(rng), bulk(rng), bulk(rng)};
    case FrameType::kChunk:
      return Chunk{task(rng), bulk(rng)};
    case FrameType::kCredit:
      return Credit{task(rng), bulk(rng)};
    case FrameType::kUpdateOffer:
      return update_offer(rng);
    case FrameType::kUpdateAccept:
      return UpdateAccept{task(rng), bulk(rng), bulk(rng)};
    case FrameType::kUpdateReceived:
      return UpdateReceived{task(rng)};
    case FrameType::kRoundCommitted:
      return RoundCommitted{task(rng), RunId(any_number(rng)), any_number32(rng), digest(rng)};
    case FrameType::kTaskEnded:
      return TaskEnded{task(rng), name(rng), sentence(rng)};
    case FrameType::kTaskFailed:
      return TaskFailed{task(rng), name(rng), sentence(rng)};
    case FrameType::kPing:
      return Ping{any_number(rng)};
    case FrameType::kPong:
      return Pong{any_number(rng)};
    case FrameType::kBye:
      return Bye{name(rng), sentence(rng)};
    case FrameType::kOperatorRequest:
      return OperatorRequest{any_number(rng), name(rng), settings(rng)};
    case FrameType::kOperatorReply:
      return OperatorReply{any_number(rng), rng.below(2) == 1, name(rng), sentence(rng),
                           static_cast<ErrorCategory>(rng.below(5))};
    case FrameType::kPeerHello:
      return peer_hello(rng);
    case FrameType::kRosterAsk:
      return RosterAsk{any_number(rng), any_number(rng),
                       random_number(rng, 0, wire::kRosterBytesMax)};
    case FrameType::kRosterPart:
      return roster_part(rng);
    case FrameType::kSwim:
      return swim(rng);
    case FrameType::kVectorTransfer:
      return transfer(rng);
    case FrameType::kColumnsAsk:
      return columns_ask(rng);
    case FrameType::kColumnsPutOff:
      return ColumnsPutOff{any_number(rng)};
    case FrameType::kMixAsk:
      return MixAsk{any_number(rng), any_number(rng), support(rng)};
    case FrameType::kMixAnswer:
      return MixAnswer{any_number(rng), any_number(rng), any_number(rng), rng.below(2) == 0,
                       support(rng)};
    case FrameType::kReduceNote:
      return reduce_note(rng);
    case FrameType::kPeerReport:
      return peer_report(rng);
    case FrameType::kRelay:
      return Relay{name(rng), static_cast<std::uint16_t>(random_number(rng, 0, 0xFFFF)),
                   Bytes(8 * random_number(rng, 0, wire::kRelayedHeaderBytesMax / 8))};
  }
  return Ping{};
}

}  // namespace starling::testing

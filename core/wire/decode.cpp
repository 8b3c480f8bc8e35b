// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/escape_controls.h"
#include "core/wire/bounds.h"
#include "core/wire/codec.h"
#include "core/wire/limits.h"
#include "core/wire/message_rules.h"
#include "core/wire/schema.h"

namespace starling::wire {
namespace {

using protocol::ReduceNote;
namespace reduce = protocol::reduce;

constexpr int kNestingMax = 8;

std::string text(capnp::Text::Reader from) { return {from.begin(), from.size()}; }

Duration duration(std::uint64_t nanoseconds) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return Duration(static_cast<std::int64_t>(std::min(nanoseconds, kMax)));
}

Result<Sha256Digest> digest(capnp::Data::Reader from) {
  if (from.size() != Sha256Digest::kBytes) {
    return rejected("bad-message", fmt::format("a SHA-256 has {} bytes", from.size()));
  }
  return Sha256Digest::from_bytes({reinterpret_cast<const std::byte*>(from.begin()), from.size()});
}

// Asked before memory is taken for a list. The library also reads lists of numbers, or of nothing,
// as lists of structs without content; but what takes no room in the message must take none here.
template <class ListReader>
Result<void> check_list(std::string_view what, ListReader list, std::size_t count_max) {
  STARLING_TRY(check_count(what, list.size(), count_max));
  if (list.size() == 0 || capnp::toAny(list[0]).getPointerSection().size() > 0) return {};
  return rejected("bad-message", fmt::format("the {} are not a list of structs", what));
}

Result<Settings> read(capnp::List<schema::Setting>::Reader from) {
  STARLING_TRY(check_list("settings", from, kSettingsMax));
  Settings settings;
  settings.reserve(from.size());
  for (const auto setting : from) {
    settings.emplace_back(text(setting.getKey()), text(setting.getValue()));
  }
  return settings;
}

Result<std::vector<update::VectorSpec>> read(capnp::List<schema::VectorSpec>::Reader from) {
  STARLING_TRY(check_list("vectors", from, kVectorsMax));
  std::vector<update::VectorSpec> vectors;
  vectors.reserve(from.size());
  for (const auto vector : from) {
    vectors.push_back({.name = text(vector.getName()),
                       .encoding = static_cast<update::Encoding>(vector.getEncoding()),
                       .elements = vector.getElements(),
                       .bytes = vector.getBytes()});
  }
  return vectors;
}

Result<std::map<std::string, double>> read(capnp::List<schema::Scalar>::Reader from) {
  STARLING_TRY(check_list("scalars", from, kScalarsMax));
  std::map<std::string, double> scalars;
  for (const auto scalar : from) {
    if (!scalars.emplace(text(scalar.getName()), scalar.getValue()).second) {
      return rejected("bad-message", "two scalars have the same name");
    }
  }
  return scalars;
}

Result<update::ModelVersion> read(schema::ModelVersion::Reader from) {
  STARLING_ASSIGN(const Sha256Digest sha256, digest(from.getSha256()));
  return update::ModelVersion{RunId(from.getRun()), from.getRound(), sha256, from.getRunKey()};
}

Result<std::vector<std::string>> read_names(capnp::List<capnp::Text>::Reader from) {
  STARLING_TRY(check_count("scalars", from.size(), kScalarsMax));
  std::vector<std::string> names;
  names.reserve(from.size());
  for (const auto name : from) names.push_back(text(name));
  return names;
}

Result<update::Schema> read(schema::Schema::Reader from) {
  STARLING_ASSIGN(auto vectors, read(from.getVectors()));
  STARLING_ASSIGN(auto scalars, read_names(from.getScalars()));
  const schema::Bounds::Reader bounds = from.getBounds();
  return update::Schema{.vectors = std::move(vectors),
                        .scalars = std::move(scalars),
                        .bounds = {.value_max = bounds.getValueMax(),
                                   .weight_max = bounds.getWeightMax(),
                                   .contributions_max = bounds.getContributionsMax()}};
}

Result<std::vector<protocol::TaskInput>> read(capnp::List<schema::TaskInput>::Reader from) {
  STARLING_TRY(check_list("inputs", from, kInputsMax));
  std::vector<protocol::TaskInput> inputs;
  inputs.reserve(from.size());
  for (const auto input : from) {
    STARLING_ASSIGN(const Sha256Digest sha256, digest(input.getSha256()));
    const bool is_float32 = input.getEncoding() == schema::Encoding::NONE;
    inputs.push_back({.name = text(input.getName()),
                      .sha256 = sha256,
                      .bytes = input.getBytes(),
                      .encoding = is_float32 ? update::Encoding::kFloat32
                                             : static_cast<update::Encoding>(input.getEncoding())});
  }
  return inputs;
}

Result<std::vector<std::string>> words(capnp::Text::Reader from) {
  STARLING_TRY(check_count("bytes of abilities", from.size(), kAbilitiesBytesMax));
  std::vector<std::string> list;
  const std::string_view all(from.begin(), from.size());
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(' ', begin), all.size());
    list.emplace_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

Result<std::vector<std::uint32_t>> read_shape(capnp::List<std::uint32_t>::Reader from) {
  STARLING_TRY(check_count("dimensions of a row", from.size(), kShapeMax));
  std::vector<std::uint32_t> shape;
  shape.reserve(from.size());
  for (const std::uint32_t dimension : from) shape.push_back(dimension);
  return shape;
}

Result<protocol::Hello> read(schema::Hello::Reader from) {
  STARLING_ASSIGN(auto abilities, words(from.getAbilities()));
  STARLING_ASSIGN(auto input, read_shape(from.getInput()));
  return protocol::Hello{.version_min = from.getVersionMin(),
                         .version_max = from.getVersionMax(),
                         .software = text(from.getSoftware()),
                         .rows = from.getRows(),
                         .abilities = std::move(abilities),
                         .input = std::move(input),
                         .classes = from.getClasses(),
                         .held_out = from.getHeldOut()};
}

Result<protocol::Welcome> read(schema::Welcome::Reader from) {
  return protocol::Welcome{.version = from.getVersion(),
                           .federation = text(from.getFederation()),
                           .client = text(from.getClient()),
                           .heartbeat = duration(from.getHeartbeatNs()),
                           .wall_time_ms = from.getWallTimeMs(),
                           .reads_sparse = from.getReadsSparse()};
}

Result<protocol::RoundPlan> read(schema::RoundPlan::Reader from) {
  STARLING_ASSIGN(const update::ModelVersion base, read(from.getBase()));
  STARLING_ASSIGN(auto settings, read(from.getSettings()));
  STARLING_ASSIGN(auto schema, read(from.getSchema()));
  STARLING_ASSIGN(auto inputs, read(from.getInputs()));
  return protocol::RoundPlan{
      .task = TaskId(from.getTask()),
      .run = RunId(from.getRun()),
      .run_name = text(from.getRunName()),
      .round = from.getRound(),
      .rounds = from.getRounds(),
      .attempt = from.getAttempt(),
      .seed = from.getSeed(),
      .base = base,
      .model_bytes = from.getModelBytes(),
      .settings = std::move(settings),
      .schema = std::move(schema),
      .deadline = duration(from.getDeadlineNs()),
      .kind = static_cast<protocol::TaskKind>(from.getKind()),
      .inputs = std::move(inputs),
      .last_counted = {TaskId(from.getLastCounted()), from.getLastCountedRound()}};
}

Result<protocol::ModelRequest> read(schema::ModelRequest::Reader from) {
  return protocol::ModelRequest{TaskId(from.getTask()), from.getOffset(), from.getLimit(),
                                from.getInput()};
}

Result<protocol::Chunk> read(schema::Chunk::Reader from) {
  return protocol::Chunk{TaskId(from.getTask()), from.getOffset(), from.getInput()};
}

Result<protocol::Credit> read(schema::Credit::Reader from) {
  return protocol::Credit{TaskId(from.getTask()), from.getLimit()};
}

Result<protocol::UpdateOffer> read(schema::UpdateOffer::Reader from) {
  STARLING_ASSIGN(const update::ModelVersion base, read(from.getBase()));
  STARLING_ASSIGN(auto vectors, read(from.getVectors()));
  STARLING_ASSIGN(auto scalars, read(from.getScalars()));
  return protocol::UpdateOffer{{.task = TaskId(from.getTask()),
                                .base = base,
                                .weight = from.getWeight(),
                                .vectors = std::move(vectors),
                                .scalars = std::move(scalars),
                                .payload_bytes = from.getPayloadBytes(),
                                .payload_checksum = from.getPayloadChecksum()}};
}

Result<protocol::UpdateAccept> read(schema::UpdateAccept::Reader from) {
  return protocol::UpdateAccept{TaskId(from.getTask()), from.getOffset(), from.getLimit()};
}

Result<protocol::UpdateReceived> read(schema::UpdateReceived::Reader from) {
  return protocol::UpdateReceived{TaskId(from.getTask())};
}

Result<protocol::RoundCommitted> read(schema::RoundCommitted::Reader from) {
  STARLING_ASSIGN(const Sha256Digest sha256, digest(from.getModelSha256()));
  return protocol::RoundCommitted{TaskId(from.getTask()), RunId(from.getRun()), from.getRound(),
                                  sha256};
}

Result<protocol::TaskEnded> read(schema::TaskEnded::Reader from) {
  return protocol::TaskEnded{TaskId(from.getTask()), text(from.getCode()), text(from.getMessage())};
}

Result<protocol::TaskFailed> read(schema::TaskFailed::Reader from) {
  return protocol::TaskFailed{TaskId(from.getTask()), text(from.getCode()), text(from.getMessage()),
                              from.getPermanent()};
}

Result<protocol::Ping> read(schema::Ping::Reader from) { return protocol::Ping{from.getNonce()}; }

Result<protocol::Pong> read(schema::Pong::Reader from) { return protocol::Pong{from.getNonce()}; }

Result<protocol::Bye> read(schema::Bye::Reader from) {
  return protocol::Bye{text(from.getCode()), text(from.getMessage())};
}

Result<protocol::OperatorRequest> read(schema::OperatorRequest::Reader from) {
  STARLING_ASSIGN(auto arguments, read(from.getArguments()));
  return protocol::OperatorRequest{from.getId(), text(from.getCommand()), std::move(arguments)};
}

// One of a later version says no more than that the request failed.
ErrorCategory category(std::uint8_t number) {
  return number <= static_cast<std::uint8_t>(kErrorCategoryMax) ? static_cast<ErrorCategory>(number)
                                                                : ErrorCategory::kFailed;
}

Result<protocol::OperatorReply> read(schema::OperatorReply::Reader from) {
  return protocol::OperatorReply{from.getId(), from.getLast(), text(from.getCode()),
                                 text(from.getMessage()), category(from.getCategory())};
}

// Lists of numbers: each takes room in the message, so that counting them is enough.
Result<std::vector<protocol::SwimNews>> read_news(capnp::List<std::uint64_t>::Reader from) {
  STARLING_TRY(check_count("news", from.size(), kSwimNewsMax));
  std::vector<protocol::SwimNews> news;
  news.reserve(from.size());
  for (const std::uint64_t word : from) {
    news.push_back({.member = static_cast<protocol::Member>(word & 0xFFFF),
                    .state = static_cast<protocol::SwimNews::State>(word >> 62),
                    .incarnation = static_cast<std::uint32_t>(word >> 32) & 0x3FFFFFFF,
                    .by = static_cast<protocol::Member>(word >> 16 & 0xFFFF)});
  }
  return news;
}

Result<std::vector<protocol::Member>> read_members(capnp::List<std::uint32_t>::Reader from) {
  STARLING_TRY(check_count("members", from.size(), kMembersMax));
  std::vector<protocol::Member> members;
  members.reserve(from.size());
  for (const protocol::Member member : from) members.push_back(member);
  return members;
}

template <class Reader>
protocol::Support read_support(Reader from) {
  return {.minority = from.getMinority(),
          .quorum_seconds = from.getQuorumSeconds(),
          .backed = from.getBacked()};
}

Result<protocol::PeerHello> read(schema::PeerHello::Reader from) {
  return protocol::PeerHello{.version_min = from.getVersionMin(),
                             .version_max = from.getVersionMax(),
                             .software = text(from.getSoftware()),
                             .epoch = from.getEpoch(),
                             .exchange = from.getExchange(),
                             .begun = from.getBegun(),
                             .support = read_support(from),
                             .elements = from.getElements(),
                             .refusal = text(from.getRefusal())};
}

Result<protocol::RosterAsk> read(schema::RosterAsk::Reader from) {
  return protocol::RosterAsk{from.getEpoch(), from.getIssuedMs(), from.getOffset()};
}

Result<protocol::RosterPart> read(schema::RosterPart::Reader from) {
  return protocol::RosterPart{from.getEpoch(), from.getOffset(), from.getTotal(),
                              from.getIssuedMs()};
}

Result<protocol::Swim> read(schema::Swim::Reader from) {
  STARLING_ASSIGN(auto news, read_news(from.getNews()));
  STARLING_TRY(check_count("beats", from.getBeats().size(), protocol::kBeatsMax));
  std::vector<std::uint64_t> beats;
  for (const std::uint64_t beat : from.getBeats()) beats.push_back(beat);
  return protocol::Swim{.kind = static_cast<protocol::Swim::Kind>(from.getKind()),
                        .epoch = from.getEpoch(),
                        .sequence = from.getSequence(),
                        .target = from.getTarget(),
                        .news = std::move(news),
                        .beats = std::move(beats)};
}

// Fields that a kind does not have are not looked at: its payload is of those that it has.
Result<protocol::VectorTransfer::Content> read_content(schema::VectorTransfer::Reader from) {
  using protocol::PairMessage;
  const std::optional<double> scalar =
      from.getHasScalar() ? std::optional(from.getScalar()) : std::nullopt;
  const protocol::Incarnations edge{from.getEra(), from.getAttempt()};
  const auto pair = [&](PairMessage::Kind kind) {
    return PairMessage{.kind = kind,
                       .number = from.getExchange(),
                       .edge = edge,
                       .phases = from.getPlace(),
                       .floats = from.getFirst(),
                       .packed = from.getPacked(),
                       .scalar = scalar};
  };
  const auto mix = [&](decltype(protocol::MixMessage::state) state) {
    return protocol::MixMessage{.exchange = from.getExchange(),
                                .state = state,
                                .first = from.getFirst(),
                                .second = from.getSecond(),
                                .packed = from.getPacked(),
                                .scalar = scalar};
  };
  switch (static_cast<TransferKind>(from.getKind())) {
    case TransferKind::kMix:
      return mix(protocol::Eras{from.getEra(), from.getAttempt()});
    case TransferKind::kEdgeMix:
      return mix(edge);
    case TransferKind::kPush:
      return pair(PairMessage::Kind::kPush);
    case TransferKind::kRequest:
      return pair(PairMessage::Kind::kRequest);
    case TransferKind::kReply:
      return pair(PairMessage::Kind::kReply);
    case TransferKind::kIntroduction:
      return protocol::Introduction{.edge = edge, .exchange = from.getExchange()};
    case TransferKind::kConfirmation:
      return protocol::Confirmation{
          .number = from.getExchange(), .edge = edge, .phases = from.getPlace()};
    case TransferKind::kReduce:
      return protocol::ReducePiece{.exchange = from.getExchange(),
                                   .attempt = from.getAttempt(),
                                   .place = from.getPlace(),
                                   .floats = from.getFirst()};
    case TransferKind::kColumns:
      return protocol::ModelColumns{
          .exchange = from.getExchange(), .begin = from.getPlace(), .floats = from.getFirst()};
    case TransferKind::kModel:
      return protocol::WholeModel{
          .exchange = from.getExchange(), .step = from.getPlace(), .floats = from.getFirst()};
  }
  return rejected("bad-message", "there is no such kind");
}

Result<protocol::VectorTransfer> read(schema::VectorTransfer::Reader from) {
  STARLING_ASSIGN(auto content, read_content(from));
  return protocol::VectorTransfer{.id = TaskId(from.getTransfer()),
                                  .epoch = from.getEpoch(),
                                  .content = content,
                                  .support = read_support(from)};
}

Result<protocol::ColumnsAsk> read(schema::ColumnsAsk::Reader from) {
  return protocol::ColumnsAsk{from.getEpoch(), from.getBegin(), from.getEnd()};
}

Result<protocol::ColumnsPutOff> read(schema::ColumnsPutOff::Reader from) {
  return protocol::ColumnsPutOff{from.getEpoch()};
}

Result<protocol::MixAsk> read(schema::MixAsk::Reader from) {
  return protocol::MixAsk{from.getEpoch(), from.getExchange(), read_support(from)};
}

Result<protocol::MixAnswer> read(schema::MixAnswer::Reader from) {
  return protocol::MixAnswer{from.getEpoch(), from.getExchange(), from.getAsked(), from.getSent(),
                             read_support(from)};
}

// Fields that a kind does not have are not looked at.
Result<reduce::What> read_note(schema::ReduceNote::Reader from) {
  using enum NoteKind;
  const auto kind = static_cast<NoteKind>(from.getKind());
  const bool is_held = (kind == kRegister || kind == kList) && from.getHeld() != 0;
  Sha256Digest sha256;
  if (is_held || kind == kDone || kind == kCommit || kind == kWant) {
    STARLING_ASSIGN(sha256, digest(from.getSha256()));
  }
  STARLING_ASSIGN(auto members, read_members(from.getMembers()));
  const auto mean = [&] {
    return protocol::NamedMean{from.getHeld(), std::move(members), sha256, from.getWeak()};
  };
  const protocol::Member other = from.getOther();
  const std::uint16_t count = from.getCount();
  switch (kind) {
    case kRegister: {
      reduce::Register its{.fresh = from.getFresh()};
      if (is_held) {
        its.held = mean();
      } else {
        its.lost = std::move(members);
      }
      if (count != 0) its.blame = protocol::Blame{other, count, from.getWrong()};
      return its;
    }
    case kList:
      if (is_held) return reduce::Standing{.mean = mean(), .holder = other};
      return reduce::List{.members = std::move(members),
                          .weak = from.getWeak(),
                          .apart = count != 0 ? std::optional(other) : std::nullopt};
    case kDone: {
      reduce::Done its{.sha256 = sha256};
      if (count != 0) its.waited = protocol::Waited{other, count, from.getHeld()};
      return its;
    }
    case kCommit:
      return reduce::Commit{std::move(members), sha256, count, other};
    case kWant:
      return reduce::Want{sha256};
    case kAsk:
      return reduce::Ask{};
    case kAskProgress:
      return reduce::AskProgress{};
    case kNotYet:
      return reduce::NotYet{};
    case kWait:
      return reduce::Wait{};
    case kAhead:
      return reduce::Ahead{std::move(members)};
  }
  return rejected("bad-message", "there is no such kind");
}

Result<ReduceNote> read(schema::ReduceNote::Reader from) {
  STARLING_ASSIGN(auto what, read_note(from));
  return ReduceNote{.epoch = from.getEpoch(),
                    .at = {.backed = from.getBacked(), .exchange = from.getExchange()},
                    .attempt = from.getAttempt(),
                    .what = std::move(what)};
}

Result<protocol::PeerReport> read(schema::PeerReport::Reader from) {
  return protocol::PeerReport{.epoch = from.getEpoch(),
                              .exchange = from.getExchange(),
                              .step = from.getStep(),
                              .state = text(from.getState()),
                              .loss = from.getLoss(),
                              .loss_steps = from.getLossSteps(),
                              .neighbours = from.getNeighbours(),
                              .expected = from.getExpected(),
                              .reachable = from.getReachable(),
                              .bytes_sent = from.getBytesSent(),
                              .bytes_received = from.getBytesReceived(),
                              .messages = from.getMessages(),
                              .problem = text(from.getProblem()),
                              .arrived = from.getArrived(),
                              .late = from.getLate(),
                              .lost = from.getLost(),
                              .staleness = from.getStaleness(),
                              .linked = from.getLinked()};
}

Result<protocol::Relay> read(schema::Relay::Reader from) {
  const capnp::Data::Reader header = from.getHeader();
  STARLING_TRY(check_count("bytes of a relayed header", header.size(), kRelayedHeaderBytesMax));
  return protocol::Relay{
      .peer = text(from.getPeer()),
      .type = from.getType(),
      .header = to_bytes({reinterpret_cast<const std::byte*>(header.begin()), header.size()})};
}

// What the other side says for people to read: why it ended something, how it is. The words end in
// logs and on terminals.
template <class Message>
void clean_words(Message& message) {
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
}

template <class Schema>
Result<protocol::Message> read_root(capnp::MessageReader& from) {
  STARLING_ASSIGN(auto message, read(from.getRoot<Schema>()));
  STARLING_TRY(check(message));
  clean_words(message);
  return protocol::Message(std::move(message));
}

Result<protocol::Message> read_message(FrameType type, capnp::MessageReader& from) {
  switch (type) {
    case FrameType::kHello:
      return read_root<schema::Hello>(from);
    case FrameType::kWelcome:
      return read_root<schema::Welcome>(from);
    case FrameType::kRoundPlan:
      return read_root<schema::RoundPlan>(from);
    case FrameType::kModelRequest:
      return read_root<schema::ModelRequest>(from);
    case FrameType::kChunk:
      return read_root<schema::Chunk>(from);
    case FrameType::kCredit:
      return read_root<schema::Credit>(from);
    case FrameType::kUpdateOffer:
      return read_root<schema::UpdateOffer>(from);
    case FrameType::kUpdateAccept:
      return read_root<schema::UpdateAccept>(from);
    case FrameType::kUpdateReceived:
      return read_root<schema::UpdateReceived>(from);
    case FrameType::kRoundCommitted:
      return read_root<schema::RoundCommitted>(from);
    case FrameType::kTaskEnded:
      return read_root<schema::TaskEnded>(from);
    case FrameType::kTaskFailed:
      return read_root<schema::TaskFailed>(from);
    case FrameType::kPing:
      return read_root<schema::Ping>(from);
    case FrameType::kPong:
      return read_root<schema::Pong>(from);
    case FrameType::kBye:
      return read_root<schema::Bye>(from);
    case FrameType::kOperatorRequest:
      return read_root<schema::OperatorRequest>(from);
    case FrameType::kOperatorReply:
      return read_root<schema::OperatorReply>(from);
    case FrameType::kPeerHello:
      return read_root<schema::PeerHello>(from);
    case FrameType::kRosterAsk:
      return read_root<schema::RosterAsk>(from);
    case FrameType::kRosterPart:
      return read_root<schema::RosterPart>(from);
    case FrameType::kSwim:
      return read_root<schema::Swim>(from);
    case FrameType::kVectorTransfer:
      return read_root<schema::VectorTransfer>(from);
    case FrameType::kColumnsAsk:
      return read_root<schema::ColumnsAsk>(from);
    case FrameType::kColumnsPutOff:
      return read_root<schema::ColumnsPutOff>(from);
    case FrameType::kMixAsk:
      return read_root<schema::MixAsk>(from);
    case FrameType::kMixAnswer:
      return read_root<schema::MixAnswer>(from);
    case FrameType::kReduceNote:
      return read_root<schema::ReduceNote>(from);
    case FrameType::kPeerReport:
      return read_root<schema::PeerReport>(from);
    case FrameType::kRelay:
      return read_root<schema::Relay>(from);
  }
  STARLING_CHECK(false);  // not of the list
}

// The one segment behind the table. Cap'n Proto's own reading of the table is not used: it allows
// many segments and has overflowed on their count.
Result<kj::ArrayPtr<const capnp::word>> only_segment(ByteView header, std::size_t words_max) {
  const std::size_t words = header.size() / kWordBytes;
  if (header.size() % kWordBytes != 0 || words < 2 || words > words_max) {
    return rejected("bad-message",
                    fmt::format("a header of {} bytes; it must be 2 to {} words of 8",
                                header.size(), words_max));
  }
  if (load_little<std::uint32_t>(header.data()) != 0 ||
      load_little<std::uint32_t>(header.data() + 4) != words - 1) {
    return rejected("bad-message", "the header is not one whole segment");
  }
  return kj::arrayPtr(reinterpret_cast<const capnp::word*>(header.data()) + 1, words - 1);
}

// Twice the message's words: each is read once, and pointers that share a target must not make much
// out of little.
capnp::ReaderOptions reader_options(std::size_t words) {
  return {.traversalLimitInWords = 2 * words + 64, .nestingLimit = kNestingMax};
}

Result<protocol::Message> decode(FrameType type, ByteView header) {
  STARLING_ASSIGN(const auto segment, only_segment(header, bound_of(type).header_words_max));
  try {
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1),
                                            reader_options(segment.size()));
    return read_message(type, reader);
  } catch (const kj::Exception& e) {
    return rejected("bad-message", e.getDescription().cStr());
  }
}

}  // namespace

Result<protocol::Message> decode_header(std::uint16_t number, ByteView header) {
  STARLING_CHECK(reinterpret_cast<std::uintptr_t>(header.data()) % kWordBytes == 0);
  const std::optional<FrameType> type = known_frame_type(number);
  if (!type) {
    return unsupported(
        "unknown-message",
        fmt::format("a frame has type {}, which this version does not know", number));
  }
  auto message = decode(*type, header);
  if (message) return message;
  const Error& error = message.error();
  const std::string what = fmt::format("cannot read {}", to_string(*type));
  if (error.kind() == ErrorKind::kUnsupported) return error.within(what);
  return rejected("bad-message", error.message()).within(what);
}

}  // namespace starling::wire

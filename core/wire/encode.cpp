// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <optional>

#include "core/base/utf8.h"
#include "core/wire/bounds.h"
#include "core/wire/codec.h"
#include "core/wire/limits.h"
#include "core/wire/message_rules.h"
#include "core/wire/schema.h"

namespace starling::wire {
namespace {

using protocol::ReduceNote;
namespace reduce = protocol::reduce;

constexpr std::size_t kSmallWords = 128;

capnp::Text::Reader text(const std::string& value) { return {value.data(), value.size()}; }

capnp::Data::Reader data(const Sha256Digest& digest) {
  return {reinterpret_cast<const kj::byte*>(digest.bytes().data()), Sha256Digest::kBytes};
}

// A list's length; check() has bounded it.
unsigned length(std::size_t count) { return static_cast<unsigned>(count); }

std::string join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::uint64_t nanoseconds(Duration duration) {
  return static_cast<std::uint64_t>(duration.count());
}

template <class ListBuilder>
void fill(ListBuilder to, const Settings& settings) {
  unsigned i = 0;
  for (const auto& [key, value] : settings) {
    to[i].setKey(text(key));
    to[i].setValue(text(value));
    ++i;
  }
}

template <class ListBuilder>
void fill(ListBuilder to, const std::vector<update::VectorSpec>& vectors) {
  unsigned i = 0;
  for (const update::VectorSpec& vector : vectors) {
    to[i].setName(text(vector.name));
    to[i].setEncoding(static_cast<schema::Encoding>(vector.encoding));
    to[i].setElements(vector.elements);
    to[i].setBytes(vector.bytes);
    ++i;
  }
}

template <class ListBuilder>
void fill(ListBuilder to, const std::vector<protocol::TaskInput>& inputs) {
  unsigned i = 0;
  for (const protocol::TaskInput& input : inputs) {
    to[i].setName(text(input.name));
    to[i].setSha256(data(input.sha256));
    to[i].setBytes(input.bytes);
    if (input.encoding != update::Encoding::kFloat32) {
      to[i].setEncoding(static_cast<schema::Encoding>(input.encoding));
    }
    ++i;
  }
}

template <class ListBuilder>
void fill(ListBuilder to, const std::map<std::string, double>& scalars) {
  unsigned i = 0;
  for (const auto& [name, value] : scalars) {
    to[i].setName(text(name));
    to[i].setValue(value);
    ++i;
  }
}

void fill(schema::ModelVersion::Builder to, const update::ModelVersion& version) {
  to.setRun(version.run.value());
  to.setRound(version.round);
  to.setSha256(data(version.sha256));
  to.setRunKey(version.run_key);
}

void fill(schema::Schema::Builder to, const update::Schema& schema) {
  fill(to.initVectors(length(schema.vectors.size())), schema.vectors);
  schema::Bounds::Builder bounds = to.initBounds();
  bounds.setValueMax(schema.bounds.value_max);
  bounds.setWeightMax(schema.bounds.weight_max);
  bounds.setContributionsMax(schema.bounds.contributions_max);
  auto scalars = to.initScalars(length(schema.scalars.size()));
  for (unsigned i = 0; i < scalars.size(); ++i) scalars.set(i, text(schema.scalars[i]));
}

void write(capnp::MessageBuilder& message, const protocol::Hello& hello) {
  auto to = message.initRoot<schema::Hello>();
  to.setVersionMin(hello.version_min);
  to.setVersionMax(hello.version_max);
  to.setSoftware(text(hello.software));
  to.setRows(hello.rows);
  if (!hello.abilities.empty()) to.setAbilities(text(join(hello.abilities)));
  if (!hello.input.empty()) {
    auto input = to.initInput(length(hello.input.size()));
    for (unsigned i = 0; i < input.size(); ++i) input.set(i, hello.input[i]);
  }
  to.setClasses(hello.classes);
  to.setHeldOut(hello.held_out);
}

void write(capnp::MessageBuilder& message, const protocol::Welcome& welcome) {
  auto to = message.initRoot<schema::Welcome>();
  to.setVersion(welcome.version);
  to.setFederation(text(welcome.federation));
  to.setClient(text(welcome.client));
  to.setHeartbeatNs(nanoseconds(welcome.heartbeat));
  to.setWallTimeMs(welcome.wall_time_ms);
  to.setReadsSparse(welcome.reads_sparse);
}

void write(capnp::MessageBuilder& message, const protocol::RoundPlan& plan) {
  auto to = message.initRoot<schema::RoundPlan>();
  to.setTask(plan.task.value());
  to.setRun(plan.run.value());
  to.setRunName(text(plan.run_name));
  to.setRound(plan.round);
  to.setRounds(plan.rounds);
  to.setAttempt(plan.attempt);
  to.setSeed(plan.seed);
  fill(to.initBase(), plan.base);
  to.setModelBytes(plan.model_bytes);
  fill(to.initSettings(length(plan.settings.size())), plan.settings);
  fill(to.initSchema(), plan.schema);
  to.setDeadlineNs(nanoseconds(plan.deadline));
  to.setKind(static_cast<std::uint8_t>(plan.kind));
  fill(to.initInputs(length(plan.inputs.size())), plan.inputs);
  to.setLastCounted(plan.last_counted.task.value());
  to.setLastCountedRound(plan.last_counted.round);
}

void write(capnp::MessageBuilder& message, const protocol::ModelRequest& request) {
  auto to = message.initRoot<schema::ModelRequest>();
  to.setTask(request.task.value());
  to.setOffset(request.offset);
  to.setLimit(request.limit);
  to.setInput(request.input);
}

void write(capnp::MessageBuilder& message, const protocol::Chunk& chunk) {
  auto to = message.initRoot<schema::Chunk>();
  to.setTask(chunk.task.value());
  to.setOffset(chunk.offset);
  to.setInput(chunk.input);
}

void write(capnp::MessageBuilder& message, const protocol::Credit& credit) {
  auto to = message.initRoot<schema::Credit>();
  to.setTask(credit.task.value());
  to.setLimit(credit.limit);
}

void write(capnp::MessageBuilder& message, const protocol::UpdateOffer& offer) {
  const update::ContributionHead& head = offer.head;
  auto to = message.initRoot<schema::UpdateOffer>();
  to.setTask(head.task.value());
  fill(to.initBase(), head.base);
  to.setWeight(head.weight);
  fill(to.initVectors(length(head.vectors.size())), head.vectors);
  fill(to.initScalars(length(head.scalars.size())), head.scalars);
  to.setPayloadBytes(head.payload_bytes);
  to.setPayloadChecksum(head.payload_checksum);
}

void write(capnp::MessageBuilder& message, const protocol::UpdateAccept& accept) {
  auto to = message.initRoot<schema::UpdateAccept>();
  to.setTask(accept.task.value());
  to.setOffset(accept.offset);
  to.setLimit(accept.limit);
}

void write(capnp::MessageBuilder& message, const protocol::UpdateReceived& received) {
  message.initRoot<schema::UpdateReceived>().setTask(received.task.value());
}

void write(capnp::MessageBuilder& message, const protocol::RoundCommitted& committed) {
  auto to = message.initRoot<schema::RoundCommitted>();
  to.setTask(committed.task.value());
  to.setRun(committed.run.value());
  to.setRound(committed.round);
  to.setModelSha256(data(committed.model_sha256));
}

void write(capnp::MessageBuilder& message, const protocol::TaskEnded& ended) {
  auto to = message.initRoot<schema::TaskEnded>();
  to.setTask(ended.task.value());
  to.setCode(text(ended.code));
  to.setMessage(text(ended.message));
}

void write(capnp::MessageBuilder& message, const protocol::TaskFailed& failed) {
  auto to = message.initRoot<schema::TaskFailed>();
  to.setTask(failed.task.value());
  to.setCode(text(failed.code));
  to.setMessage(text(failed.message));
  to.setPermanent(failed.permanent);
}

void write(capnp::MessageBuilder& message, const protocol::Ping& ping) {
  message.initRoot<schema::Ping>().setNonce(ping.nonce);
}

void write(capnp::MessageBuilder& message, const protocol::Pong& pong) {
  message.initRoot<schema::Pong>().setNonce(pong.nonce);
}

void write(capnp::MessageBuilder& message, const protocol::Bye& bye) {
  auto to = message.initRoot<schema::Bye>();
  to.setCode(text(bye.code));
  to.setMessage(text(bye.message));
}

void write(capnp::MessageBuilder& message, const protocol::OperatorRequest& request) {
  auto to = message.initRoot<schema::OperatorRequest>();
  to.setId(request.id);
  to.setCommand(text(request.command));
  fill(to.initArguments(length(request.arguments.size())), request.arguments);
}

void write(capnp::MessageBuilder& message, const protocol::OperatorReply& reply) {
  auto to = message.initRoot<schema::OperatorReply>();
  to.setId(reply.id);
  to.setLast(reply.last);
  to.setCategory(static_cast<std::uint8_t>(reply.category));
  to.setCode(text(reply.code));
  to.setMessage(text(reply.message));
}

// The sign bit and the next are the state.
std::uint64_t word_of(const protocol::SwimNews& news) {
  return news.member | static_cast<std::uint64_t>(news.by) << 16 |
         static_cast<std::uint64_t>(news.incarnation) << 32 |
         static_cast<std::uint64_t>(news.state) << 62;
}

template <class Builder>
void write_support(Builder& to, const protocol::Support& support) {
  to.setMinority(support.minority);
  to.setQuorumSeconds(support.quorum_seconds);
  to.setBacked(support.backed);
}

void write(capnp::MessageBuilder& message, const protocol::PeerHello& hello) {
  auto to = message.initRoot<schema::PeerHello>();
  to.setVersionMin(hello.version_min);
  to.setVersionMax(hello.version_max);
  to.setSoftware(text(hello.software));
  to.setEpoch(hello.epoch);
  to.setExchange(hello.exchange);
  to.setBegun(hello.begun);
  write_support(to, hello.support);
  to.setElements(hello.elements);
  if (!hello.refusal.empty()) to.setRefusal(text(hello.refusal));
}

void write(capnp::MessageBuilder& message, const protocol::RosterAsk& ask) {
  auto to = message.initRoot<schema::RosterAsk>();
  to.setEpoch(ask.epoch);
  to.setIssuedMs(ask.issued_ms);
  to.setOffset(ask.offset);
}

void write(capnp::MessageBuilder& message, const protocol::RosterPart& part) {
  auto to = message.initRoot<schema::RosterPart>();
  to.setEpoch(part.epoch);
  to.setOffset(part.offset);
  to.setTotal(part.total);
  to.setIssuedMs(part.issued_ms);
}

void write(capnp::MessageBuilder& message, const protocol::Swim& swim) {
  auto to = message.initRoot<schema::Swim>();
  to.setKind(static_cast<std::uint8_t>(swim.kind));
  to.setEpoch(swim.epoch);
  to.setSequence(swim.sequence);
  to.setTarget(swim.target);
  auto news = to.initNews(length(swim.news.size()));
  for (unsigned i = 0; i < news.size(); ++i) news.set(i, word_of(swim.news[i]));
  if (swim.beats.empty()) return;
  auto beats = to.initBeats(length(swim.beats.size()));
  for (unsigned i = 0; i < beats.size(); ++i) beats.set(i, swim.beats[i]);
}

void write_edge(schema::VectorTransfer::Builder to, const protocol::Incarnations& edge) {
  to.setEra(edge.sender);
  to.setAttempt(edge.receiver);
}

void write_content(schema::VectorTransfer::Builder to, const protocol::MixMessage& mix) {
  if (const auto* const eras = std::get_if<protocol::Eras>(&mix.state)) {
    to.setKind(static_cast<std::uint8_t>(TransferKind::kMix));
    to.setEra(eras->current);
    to.setAttempt(eras->next);
  } else {
    to.setKind(static_cast<std::uint8_t>(TransferKind::kEdgeMix));
    write_edge(to, std::get<protocol::Incarnations>(mix.state));
  }
  to.setExchange(mix.exchange);
  to.setFirst(mix.first);
  to.setSecond(mix.second);
  to.setPacked(mix.packed);
  to.setHasScalar(mix.scalar.has_value());
  to.setScalar(mix.scalar.value_or(0));
}

void write_content(schema::VectorTransfer::Builder to, const protocol::PairMessage& pair) {
  const auto kind = pair.kind == protocol::PairMessage::Kind::kPush      ? TransferKind::kPush
                    : pair.kind == protocol::PairMessage::Kind::kRequest ? TransferKind::kRequest
                                                                         : TransferKind::kReply;
  to.setKind(static_cast<std::uint8_t>(kind));
  to.setExchange(pair.number);
  write_edge(to, pair.edge);
  to.setPlace(pair.phases);
  to.setFirst(pair.floats);
  to.setPacked(pair.packed);
  to.setHasScalar(pair.scalar.has_value());
  to.setScalar(pair.scalar.value_or(0));
}

void write_content(schema::VectorTransfer::Builder to, const protocol::Introduction& its) {
  to.setKind(static_cast<std::uint8_t>(TransferKind::kIntroduction));
  write_edge(to, its.edge);
  to.setExchange(its.exchange);
}

void write_content(schema::VectorTransfer::Builder to, const protocol::Confirmation& its) {
  to.setKind(static_cast<std::uint8_t>(TransferKind::kConfirmation));
  to.setExchange(its.number);
  write_edge(to, its.edge);
  to.setPlace(its.phases);
}

void write_content(schema::VectorTransfer::Builder to, const protocol::ReducePiece& piece) {
  to.setKind(static_cast<std::uint8_t>(TransferKind::kReduce));
  to.setExchange(piece.exchange);
  to.setAttempt(piece.attempt);
  to.setPlace(piece.place);
  to.setFirst(piece.floats);
}

void write_content(schema::VectorTransfer::Builder to, const protocol::ModelColumns& columns) {
  to.setKind(static_cast<std::uint8_t>(TransferKind::kColumns));
  to.setExchange(columns.exchange);
  to.setPlace(columns.begin);
  to.setFirst(columns.floats);
}

void write_content(schema::VectorTransfer::Builder to, const protocol::WholeModel& model) {
  to.setKind(static_cast<std::uint8_t>(TransferKind::kModel));
  to.setExchange(model.exchange);
  to.setPlace(model.step);
  to.setFirst(model.floats);
}

void write(capnp::MessageBuilder& message, const protocol::VectorTransfer& transfer) {
  auto to = message.initRoot<schema::VectorTransfer>();
  to.setTransfer(transfer.id.value());
  to.setEpoch(transfer.epoch);
  std::visit([&](const auto& content) { write_content(to, content); }, transfer.content);
  write_support(to, transfer.support);
}

void write(capnp::MessageBuilder& message, const protocol::ColumnsAsk& ask) {
  auto to = message.initRoot<schema::ColumnsAsk>();
  to.setEpoch(ask.epoch);
  to.setBegin(ask.begin);
  to.setEnd(ask.end);
}

void write(capnp::MessageBuilder& message, const protocol::ColumnsPutOff& answer) {
  message.initRoot<schema::ColumnsPutOff>().setEpoch(answer.epoch);
}

void write(capnp::MessageBuilder& message, const protocol::MixAsk& ask) {
  auto to = message.initRoot<schema::MixAsk>();
  to.setEpoch(ask.epoch);
  to.setExchange(ask.exchange);
  write_support(to, ask.support);
}

void write(capnp::MessageBuilder& message, const protocol::MixAnswer& answer) {
  auto to = message.initRoot<schema::MixAnswer>();
  to.setEpoch(answer.epoch);
  to.setExchange(answer.exchange);
  to.setAsked(answer.asked);
  to.setSent(answer.sent);
  write_support(to, answer.support);
}

void set_members(schema::ReduceNote::Builder to, const std::vector<protocol::Member>& from) {
  auto members = to.initMembers(length(from.size()));
  for (unsigned i = 0; i < members.size(); ++i) members.set(i, from[i]);
}

void set_mean(schema::ReduceNote::Builder to, const protocol::NamedMean& mean) {
  to.setHeld(mean.attempt);
  set_members(to, mean.members);
  to.setSha256(data(mean.sha256));
  to.setWeak(mean.weak);
}

void write_note(schema::ReduceNote::Builder to, const reduce::Register& its) {
  if (its.held) {
    set_mean(to, *its.held);
  } else {
    set_members(to, its.lost);
  }
  if (its.blame) {
    to.setOther(its.blame->member);
    to.setCount(its.blame->pieces);
    to.setWrong(its.blame->wrong);
  }
  to.setFresh(its.fresh);
}

void write_note(schema::ReduceNote::Builder to, const reduce::List& its) {
  set_members(to, its.members);
  to.setWeak(its.weak);
  if (!its.apart) return;
  to.setOther(*its.apart);
  to.setCount(1);
}

void write_note(schema::ReduceNote::Builder to, const reduce::Standing& its) {
  set_mean(to, its.mean);
  to.setOther(its.holder);
}

void write_note(schema::ReduceNote::Builder to, const reduce::Done& its) {
  to.setSha256(data(its.sha256));
  if (!its.waited) return;
  to.setOther(its.waited->of);
  to.setCount(its.waited->piece);
  to.setHeld(its.waited->milliseconds);
}

void write_note(schema::ReduceNote::Builder to, const reduce::Commit& its) {
  set_members(to, its.members);
  to.setSha256(data(its.sha256));
  to.setCount(its.support);
  to.setOther(its.holder);
}

void write_note(schema::ReduceNote::Builder to, const reduce::Want& its) {
  to.setHeld(to.getAttempt());
  to.setSha256(data(its.sha256));
}

void write_note(schema::ReduceNote::Builder to, const reduce::NotYet&) {
  to.setHeld(to.getAttempt());
}

void write_note(schema::ReduceNote::Builder, const reduce::Ask&) {}
void write_note(schema::ReduceNote::Builder, const reduce::AskProgress&) {}

void write_note(schema::ReduceNote::Builder, const reduce::Wait&) {}

void write_note(schema::ReduceNote::Builder to, const reduce::Ahead& its) {
  set_members(to, its.donors);
}

void write(capnp::MessageBuilder& message, const ReduceNote& note) {
  using enum NoteKind;
  static constexpr std::array<NoteKind, std::variant_size_v<reduce::What>> kKinds = {
      kRegister, kList, kList, kDone, kCommit, kWant, kNotYet, kAsk, kAskProgress, kWait, kAhead};
  auto to = message.initRoot<schema::ReduceNote>();
  to.setKind(static_cast<std::uint8_t>(kKinds.at(note.what.index())));
  to.setAttempt(note.attempt);
  to.setEpoch(note.epoch);
  to.setExchange(note.at.exchange);
  to.setBacked(note.at.backed);
  std::visit([&](const auto& what) { write_note(to, what); }, note.what);
}

void write(capnp::MessageBuilder& message, const protocol::PeerReport& report) {
  auto to = message.initRoot<schema::PeerReport>();
  to.setEpoch(report.epoch);
  to.setExchange(report.exchange);
  to.setStep(report.step);
  to.setState(text(report.state));
  to.setLoss(report.loss);
  to.setLossSteps(report.loss_steps);
  to.setNeighbours(report.neighbours);
  to.setExpected(report.expected);
  to.setReachable(report.reachable);
  to.setBytesSent(report.bytes_sent);
  to.setBytesReceived(report.bytes_received);
  to.setMessages(report.messages);
  to.setProblem(text(report.problem));
  to.setArrived(report.arrived);
  to.setLate(report.late);
  to.setLost(report.lost);
  to.setStaleness(report.staleness);
  to.setLinked(report.linked);
}

void write(capnp::MessageBuilder& message, const protocol::Relay& relay) {
  auto to = message.initRoot<schema::Relay>();
  to.setPeer(text(relay.peer));
  to.setType(relay.type);
  to.setHeader({reinterpret_cast<const kj::byte*>(relay.header.data()), relay.header.size()});
}

// The segment behind its table: how many segments there are less one, and its words.
Bytes with_table(kj::ArrayPtr<const capnp::word> segment) {
  Bytes header(kWordBytes + segment.size() * kWordBytes);
  store_little<std::uint32_t>(header.data() + 4, static_cast<std::uint32_t>(segment.size()));
  std::memcpy(header.data() + kWordBytes, segment.begin(), segment.size() * kWordBytes);
  return header;
}

// None: it does not fit into `scratch`, which is zero before and after.
template <class Message>
std::optional<Bytes> build(const Message& message, kj::ArrayPtr<capnp::word> scratch) {
  capnp::MallocMessageBuilder builder(scratch, capnp::AllocationStrategy::FIXED_SIZE);
  write(builder, message);
  const auto segments = builder.getSegmentsForOutput();
  if (segments.size() != 1) return std::nullopt;
  return with_table(segments[0]);
}

template <class Message>
std::optional<Bytes> build(const Message& message) {
  std::array<std::uint64_t, kSmallWords> small{};
  auto header =
      build(message, kj::arrayPtr(reinterpret_cast<capnp::word*>(small.data()), small.size()));
  if (header) return header;
  std::vector<std::uint64_t> large(kHeaderBytesMax / kWordBytes - 1);
  return build(message, kj::arrayPtr(reinterpret_cast<capnp::word*>(large.data()), large.size()));
}

template <class Message>
Result<Bytes> encode_fitting(const Message& message, FrameType type) {
  STARLING_TRY(check(message));
  const std::size_t bytes_max = bound_of(type).header_words_max * kWordBytes;
  std::optional<Bytes> header = build(message);
  if (!header || header->size() > bytes_max) {
    return rejected("message-too-large",
                    fmt::format("its header takes more than {} bytes", bytes_max));
  }
  return *std::move(header);
}

template <class Message>
Result<Bytes> encode(const Message& message, FrameType type) {
  if constexpr (requires { message.message; }) {
    if (message.message.size() > kSentenceBytesMax || !is_utf8(message.message)) {
      Message clean = message;
      clean.message = clean_sentence(message.message, kSentenceBytesMax);
      return encode_fitting(clean, type);
    }
  }
  if constexpr (requires { message.problem; }) {
    if (message.problem.size() > kSentenceBytesMax || !is_utf8(message.problem)) {
      Message clean = message;
      clean.problem = clean_sentence(message.problem, kSentenceBytesMax);
      return encode_fitting(clean, type);
    }
  }
  return encode_fitting(message, type);
}

}  // namespace

Result<Bytes> encode_header(const protocol::Message& message) {
  const FrameType type = frame_type(message);
  try {
    auto header = std::visit([type](const auto& one) { return encode(one, type); }, message);
    if (!header) return header.error().within(fmt::format("cannot send {}", to_string(type)));
    return header;
  } catch (const kj::Exception& e) {
    return internal("encoding-failed",
                    fmt::format("cannot send {}: {}", to_string(type), e.getDescription().cStr()));
  }
}

}  // namespace starling::wire

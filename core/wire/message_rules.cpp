// SPDX-License-Identifier: Apache-2.0
#include "core/wire/message_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/utf8.h"
#include "core/wire/limits.h"

namespace starling::wire {
namespace {

Result<void> expect(bool condition, std::string_view sentence) {
  if (condition) return {};
  return rejected("bad-message", std::string(sentence));
}

Result<void> check_text(std::string_view what, const std::string& text, std::size_t bytes_max) {
  if (text.size() > bytes_max) {
    return rejected("message-too-large", fmt::format("{} has {} bytes; at most {} may travel", what,
                                                     text.size(), bytes_max));
  }
  if (!is_utf8(text)) return rejected("bad-message", fmt::format("{} is not UTF-8", what));
  return {};
}

Result<void> check_name(std::string_view what, const std::string& name) {
  return check_text(what, name, kNameBytesMax);
}

Result<void> check_ending(const std::string& code, const std::string& message) {
  STARLING_TRY(check_name("the code", code));
  return check_text("the message", message, kSentenceBytesMax);
}

Result<void> check_task(TaskId task) { return expect(task.value() != 0, "the task has no id"); }

Result<void> check_bulk(std::string_view what, std::uint64_t bytes) {
  if (bytes <= kBulkBytesMax) return {};
  return rejected("bad-message",
                  fmt::format("{} is {} bytes; at most {} can be", what, bytes, kBulkBytesMax));
}

Result<void> check_range(std::uint64_t offset, std::uint64_t limit) {
  STARLING_TRY(check_bulk("the offset", offset));
  return check_bulk("the limit", limit);
}

Result<void> check_duration(std::string_view what, Duration value, Duration min, Duration max) {
  if (value >= min && value <= max) return {};
  return rejected("bad-message",
                  fmt::format("{} is {}; it must be from {} to {}", what, format_duration(value),
                              format_duration(min), format_duration(max)));
}

Result<void> check_settings(const Settings& settings) {
  STARLING_TRY(check_count("settings", settings.size(), kSettingsMax));
  for (const auto& [key, value] : settings) {
    STARLING_TRY(check_text("the key of a setting", key, kSettingKeyBytesMax));
    STARLING_TRY(check_text("the value of a setting", value, kSettingValueBytesMax));
  }
  return {};
}

Result<void> check_vectors(const std::vector<update::VectorSpec>& vectors) {
  STARLING_TRY(check_count("vectors", vectors.size(), kVectorsMax));
  for (const update::VectorSpec& vector : vectors) {
    STARLING_TRY(check_name("the name of a vector", vector.name));
    STARLING_TRY(expect(vector.elements <= kElementsMax, "a vector has too many elements"));
    STARLING_TRY(check_bulk("a vector", vector.bytes));
  }
  return {};
}

// Not of a task: a client refuses one that asks for an encoding of a later version, and keeps its
// connection for others.
Result<void> check_encodings(const std::vector<update::VectorSpec>& vectors) {
  for (const update::VectorSpec& vector : vectors) {
    if (update::is_known(vector.encoding)) continue;
    return unsupported("unknown-encoding",
                       fmt::format("a vector has encoding {}, which this version cannot read; "
                                   "both sides need the same version of Starling",
                                   static_cast<unsigned>(vector.encoding)));
  }
  return {};
}

Result<void> check_scalars(const std::map<std::string, double>& scalars) {
  STARLING_TRY(check_count("scalars", scalars.size(), kScalarsMax));
  for (const auto& [name, value] : scalars) {
    STARLING_TRY(check_name("the name of a scalar", name));
  }
  return {};
}

Result<void> check_inputs(const std::vector<protocol::TaskInput>& inputs) {
  STARLING_TRY(check_count("inputs", inputs.size(), kInputsMax));
  for (const protocol::TaskInput& input : inputs) {
    STARLING_TRY(check_name("the name of an input", input.name));
    STARLING_TRY(check_bulk("an input", input.bytes));
  }
  return {};
}

// As they travel: words with one blank between them.
Result<void> check_words(std::string_view what, const std::vector<std::string>& words,
                         std::size_t bytes_max) {
  std::size_t bytes = 0;
  for (const std::string& word : words) {
    const bool is_word = !word.empty() && std::ranges::all_of(word, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (!is_word) return rejected("bad-message", fmt::format("{} is no plain word", what));
    bytes += word.size() + (bytes > 0 ? 1 : 0);
  }
  return check_count("bytes of words", bytes, bytes_max);
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

Result<void> check_schema(const update::Schema& schema) {
  STARLING_TRY(check_vectors(schema.vectors));
  STARLING_TRY(check_count("scalars", schema.scalars.size(), kScalarsMax));
  for (const std::string& name : schema.scalars) {
    STARLING_TRY(check_name("the name of a scalar", name));
  }
  const update::Bounds& bounds = schema.bounds;
  return expect(is_positive(bounds.value_max) && is_positive(bounds.weight_max) &&
                    bounds.contributions_max > 0,
                "the round's bounds are not positive and finite");
}

Result<void> check_vector(std::uint64_t floats) {
  return expect(floats <= kElementsMax, "a vector has too many elements");
}

Result<void> check_scalar(const std::optional<double>& scalar) {
  return expect(std::isfinite(scalar.value_or(0)), "the scalar is not finite");
}

Result<void> check_content(const protocol::MixMessage& mix) {
  STARLING_TRY(check_vector(mix.first));
  STARLING_TRY(check_vector(mix.second));
  STARLING_TRY(check_scalar(mix.scalar));
  return check_bulk("the packed part", mix.packed);
}

Result<void> check_phases(std::uint64_t phases) {
  return expect(phases <= kBulkBytesMax, "too many phases");
}

Result<void> check_content(const protocol::PairMessage& pair) {
  STARLING_TRY(check_vector(pair.floats));
  STARLING_TRY(check_scalar(pair.scalar));
  STARLING_TRY(check_phases(pair.phases));
  return check_bulk("the packed part", pair.packed);
}

Result<void> check_content(const protocol::Introduction&) { return {}; }

Result<void> check_content(const protocol::Confirmation& its) { return check_phases(its.phases); }

Result<void> check_content(const protocol::ReducePiece& piece) {
  STARLING_TRY(check_bulk("the place", piece.place));
  return check_vector(piece.floats);
}

Result<void> check_content(const protocol::ModelColumns& columns) {
  STARLING_TRY(check_bulk("the first column", columns.begin));
  return check_vector(columns.floats);
}

Result<void> check_content(const protocol::WholeModel& model) {
  STARLING_TRY(expect(model.step <= kBulkBytesMax, "too many steps"));
  return check_vector(model.floats);
}

Result<void> check_members(const std::vector<protocol::Member>& members) {
  return check_count("members", members.size(), kMembersMax);
}

Result<void> check_mean(const protocol::NamedMean& mean) {
  STARLING_TRY(expect(mean.attempt != 0, "the mean is of no attempt"));
  return check_members(mean.members);
}

Result<void> check_note(const protocol::reduce::Register& its) {
  STARLING_TRY(expect(!its.blame || its.blame->pieces != 0,
                      "the blame is after no pieces; they count from 1"));
  STARLING_TRY(expect(!its.held || its.lost.empty(),
                      "a registration names a mean and members that are lost"));
  return its.held ? check_mean(*its.held) : check_members(its.lost);
}

Result<void> check_note(const protocol::reduce::Standing& its) { return check_mean(its.mean); }

Result<void> check_note(const protocol::reduce::Ahead& its) { return check_members(its.donors); }

template <class What>
Result<void> check_note(const What& its) {
  if constexpr (requires { its.members; }) return check_members(its.members);
  return {};
}

}  // namespace

Result<void> check_count(std::string_view what, std::size_t count, std::size_t count_max) {
  if (count <= count_max) return {};
  return rejected("message-too-large",
                  fmt::format("there are {} {}; at most {} may travel", count, what, count_max));
}

Result<void> check(const protocol::Hello& hello) {
  STARLING_TRY(expect(hello.version_min >= 1 && hello.version_min <= hello.version_max,
                      "the versions are not a range"));
  STARLING_TRY(check_name("the software's name", hello.software));
  STARLING_TRY(check_count("dimensions of a row", hello.input.size(), kShapeMax));
  return check_words("an ability", hello.abilities, kAbilitiesBytesMax);
}

Result<void> check(const protocol::Welcome& welcome) {
  STARLING_TRY(expect(welcome.version >= 1, "there is no version"));
  STARLING_TRY(check_name("the federation's name", welcome.federation));
  STARLING_TRY(check_name("the client's name", welcome.client));
  return check_duration("the heartbeat", welcome.heartbeat, kHeartbeatMin, kHeartbeatMax);
}

Result<void> check(const protocol::RoundPlan& plan) {
  STARLING_TRY(check_task(plan.task));
  STARLING_TRY(expect(plan.run.value() != 0, "the run has no id"));
  STARLING_TRY(check_name("the run's name", plan.run_name));
  STARLING_TRY(expect(plan.round >= 1 && plan.round <= plan.rounds && plan.attempt >= 1,
                      "round and attempt do not count from 1 to what the run has"));
  STARLING_TRY(check_bulk("the model", plan.model_bytes));
  STARLING_TRY(check_settings(plan.settings));
  STARLING_TRY(check_schema(plan.schema));
  STARLING_TRY(expect(plan.kind <= protocol::TaskKind::kEvaluate, "there is no such kind of task"));
  STARLING_TRY(check_inputs(plan.inputs));
  return check_duration("the deadline", plan.deadline, Duration::zero(), kDeadlineMax);
}

Result<void> check(const protocol::ModelRequest& request) {
  STARLING_TRY(check_task(request.task));
  return check_range(request.offset, request.limit);
}

Result<void> check(const protocol::Chunk& chunk) {
  STARLING_TRY(check_task(chunk.task));
  return check_bulk("the offset", chunk.offset);
}

Result<void> check(const protocol::Credit& credit) {
  STARLING_TRY(check_task(credit.task));
  return check_bulk("the limit", credit.limit);
}

Result<void> check(const protocol::UpdateOffer& offer) {
  STARLING_TRY(check_task(offer.head.task));
  STARLING_TRY(check_vectors(offer.head.vectors));
  STARLING_TRY(check_encodings(offer.head.vectors));
  STARLING_TRY(check_scalars(offer.head.scalars));
  return check_bulk("the payload", offer.head.payload_bytes);
}

Result<void> check(const protocol::UpdateAccept& accept) {
  STARLING_TRY(check_task(accept.task));
  return check_range(accept.offset, accept.limit);
}

Result<void> check(const protocol::UpdateReceived& received) { return check_task(received.task); }

Result<void> check(const protocol::RoundCommitted& committed) { return check_task(committed.task); }

Result<void> check(const protocol::TaskEnded& ended) {
  STARLING_TRY(check_task(ended.task));
  return check_ending(ended.code, ended.message);
}

Result<void> check(const protocol::TaskFailed& failed) {
  STARLING_TRY(check_task(failed.task));
  return check_ending(failed.code, failed.message);
}

Result<void> check(const protocol::Ping&) { return {}; }

Result<void> check(const protocol::Pong&) { return {}; }

Result<void> check(const protocol::Bye& bye) { return check_ending(bye.code, bye.message); }

Result<void> check(const protocol::OperatorRequest& request) {
  STARLING_TRY(check_name("the command", request.command));
  return check_settings(request.arguments);
}

Result<void> check(const protocol::OperatorReply& reply) {
  return check_ending(reply.code, reply.message);
}

Result<void> check(const protocol::PeerHello& hello) {
  STARLING_TRY(expect(hello.version_min >= 1 && hello.version_min <= hello.version_max,
                      "the versions are not a range"));
  STARLING_TRY(check_name("the software's name", hello.software));
  return check_text("the refusal", hello.refusal, kRefusalBytesMax);
}

Result<void> check(const protocol::RosterAsk& ask) {
  return expect(ask.offset <= kRosterBytesMax, "the offset is not within a roster");
}

Result<void> check(const protocol::RosterPart& part) {
  return expect(part.total <= kRosterBytesMax && part.offset <= part.total,
                "the roster's piece is not within a roster");
}

Result<void> check(const protocol::Swim& swim) {
  STARLING_TRY(expect(swim.kind <= protocol::Swim::Kind::kPingRequest, "there is no such kind"));
  STARLING_TRY(check_count("news", swim.news.size(), kSwimNewsMax));
  STARLING_TRY(check_count("beats", swim.beats.size(), protocol::kBeatsMax));
  for (const protocol::SwimNews& news : swim.news) {
    STARLING_TRY(expect(news.member < kMembersMax && news.by < kMembersMax,
                        "the news are of or by no member that a roster could have"));
    STARLING_TRY(expect(
        news.state <= protocol::SwimNews::State::kDead && news.incarnation <= kIncarnationMax,
        "the news are of no state or incarnation"));
  }
  return {};
}

Result<void> check(const protocol::VectorTransfer& transfer) {
  STARLING_TRY(check_task(transfer.id));
  return std::visit([](const auto& content) { return check_content(content); }, transfer.content);
}

Result<void> check(const protocol::ColumnsAsk& ask) {
  return expect(ask.begin < ask.end && ask.end <= kElementsMax, "the columns are not a range");
}

Result<void> check(const protocol::ColumnsPutOff&) { return {}; }

Result<void> check(const protocol::MixAsk&) { return {}; }

Result<void> check(const protocol::MixAnswer&) { return {}; }

Result<void> check(const protocol::ReduceNote& note) {
  return std::visit([](const auto& what) { return check_note(what); }, note.what);
}

Result<void> check(const protocol::PeerReport& report) {
  STARLING_TRY(check_name("the state", report.state));
  return check_text("the problem", report.problem, kSentenceBytesMax);
}

Result<void> check(const protocol::Relay& relay) {
  STARLING_TRY(check_name("the peer's name", relay.peer));
  STARLING_TRY(expect(relay.header.size() % 8 == 0, "the relayed header is not of whole words"));
  return check_count("bytes of a relayed header", relay.header.size(), kRelayedHeaderBytesMax);
}

}  // namespace starling::wire

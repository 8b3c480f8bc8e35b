// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>

#include "core/base/counted.h"
#include "core/base/escape_controls.h"
#include "core/base/list_some.h"
#include "core/base/nearest_name.h"
#include "core/base/utf8.h"
#include "core/model/external_model.h"
#include "core/update/contribution.h"

namespace starling::client {
namespace {

namespace json = boost::json;

constexpr int kProtocolVersion = 1;
constexpr std::size_t kCodeBytesMax = 40;
constexpr std::size_t kSentenceBytesMax = 1024;
constexpr std::size_t kDimensionsMax = 8;
constexpr double kWholeMax = 9007199254740992;  // 2^53: doubles count up to here

constexpr std::array<std::string_view, 4> kOperationNames = {"initialize", "fit", "evaluate",
                                                             "gradient"};

std::string json_text(std::string_view text) {
  return json::serialize(json::string(text.data(), text.size()));
}

// In one line, whatever its own lines.
Result<std::string> object_in_a_line(std::string_view text) {
  boost::system::error_code code;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), code);
  if (code || !value.is_object()) {
    return wrong_setting("setting-invalid",
                         "the settings of the clients' trainers (trainer.settings) are not a JSON "
                         "object: '" +
                             printable(text) + "'");
  }
  return json::serialize(value);
}

std::string place_member(std::string_view name, const std::optional<TensorPlaces::Place>& place) {
  if (!place) return {};
  return fmt::format(R"(, "{}": {{"offset": {}, "bytes": {}}})", name, place->offset, place->bytes);
}

Error diverged_answer() {
  return rejected("diverged",
                  "the trainer answered with a number that is NaN or infinite; lower the learning "
                  "rate or set clip-norm");
}

// Its own error: what went wrong is its to say.
Error trainer_error(const json::object& error) {
  const json::value* message = error.if_contains("message");
  const json::value* code = error.if_contains("code");
  if (message == nullptr || !message->is_string()) {
    return protocol_error("answered with an error that has no message");
  }
  std::string word = "trainer-failed";
  if (code != nullptr) {
    if (!code->is_string()) return protocol_error("answered with an error whose code is no text");
    const std::string_view own(code->get_string().data(), code->get_string().size());
    const bool is_word = !own.empty() && own.size() <= kCodeBytesMax &&
                         own.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == own.npos;
    if (!is_word) {
      return protocol_error("answered with an error whose code is '" + printable(own) +
                            "', not a word of a-z, 0-9 and - of at most 40 bytes");
    }
    if (!own.starts_with("trainer-")) word = own;
  }
  const std::string_view text(message->get_string().data(), message->get_string().size());
  std::string sentence =
      "the trainer says: " + escape_controls(clean_sentence(text, kSentenceBytesMax));
  if (word == "stopped") return retry(word, std::move(sentence));
  if (word == "unsupported-operation") return unsupported(word, std::move(sentence));
  return rejected(word, std::move(sentence));
}

// NaN and Infinity, as programs write them whose JSON is not strict.
bool has_a_number_that_is_not_finite(std::string_view line) {
  return line.starts_with('{') &&
         (line.find("NaN") != line.npos || line.find("Infinity") != line.npos);
}

// The members of "ok".
Result<json::object> answer_of(std::string_view line, std::uint64_t id) {
  boost::system::error_code code;
  json::value value = json::parse(json::string_view(line.data(), line.size()), code);
  if (code && has_a_number_that_is_not_finite(line)) return diverged_answer();
  if (code || !value.is_object()) {
    return protocol_error("answered with a line that is not a JSON object: '" + printable(line) +
                          "'");
  }
  json::object& answer = value.get_object();
  const json::value* its_id = answer.if_contains("id");
  boost::system::error_code not_an_integer;
  if (its_id == nullptr || !its_id->is_number() ||
      its_id->to_number<std::uint64_t>(not_an_integer) != id || not_an_integer) {
    return protocol_error(fmt::format("answered to '{}' where {} was asked",
                                      its_id == nullptr ? "" : printable(json::serialize(*its_id)),
                                      id));
  }
  json::value* ok = answer.if_contains("ok");
  json::value* error = answer.if_contains("error");
  if ((ok == nullptr) == (error == nullptr)) {
    return protocol_error("answered with " + std::string(ok == nullptr ? "neither" : "both") +
                          " of 'ok' and 'error'");
  }
  json::value& content = ok != nullptr ? *ok : *error;
  if (!content.is_object()) {
    return protocol_error(
        fmt::format("answered with '{}' that is not an object", ok != nullptr ? "ok" : "error"));
  }
  if (error != nullptr) return trainer_error(content.get_object());
  return std::move(content.get_object());
}

struct NumberRange {
  double min;
  double max;
  bool whole = false;
  bool needed = true;
};

// 0 where it is missing and not needed.
Result<double> number(const json::object& object, std::string_view name, const NumberRange& range) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || value->is_null()) {
    if (!range.needed) return 0.0;
    return protocol_error(fmt::format("answered without '{}'", name));
  }
  boost::system::error_code code;
  const double number = value->is_number() ? value->to_number<double>(code) : 0;
  if (!value->is_number() || code) {
    return protocol_error(fmt::format("answered with a '{}' that is not a number", name));
  }
  if (!std::isfinite(number)) return diverged_answer();
  const bool in_range =
      number >= range.min && number <= range.max && (!range.whole || number == std::floor(number));
  if (in_range) return number;
  return protocol_error(fmt::format("answered with {} = {}; it must be {} from {} to {}", name,
                                    number, range.whole ? "an integer" : "a number", range.min,
                                    range.max));
}

Result<std::uint64_t> count(const json::object& object, std::string_view name) {
  STARLING_ASSIGN(const double value, number(object, name, {0, kWholeMax, true, false}));
  return static_cast<std::uint64_t>(value);
}

Result<std::optional<double>> read_accuracy(const json::object& object) {
  const json::value* value = object.if_contains("accuracy");
  if (value == nullptr || value->is_null()) return std::optional<double>();
  STARLING_ASSIGN(const double accuracy, number(object, "accuracy", {0, 1}));
  return std::optional(accuracy);
}

Result<train::Metrics> read_metrics(const json::object& object, TrainerOperation operation) {
  const bool trains = operation == TrainerOperation::kFit;
  train::Metrics metrics;
  const json::value* listed = object.if_contains("metrics");
  if (listed == nullptr || listed->is_null()) return metrics;
  if (!listed->is_object()) return protocol_error("answered with 'metrics' that is not an object");
  const json::object& members = listed->get_object();
  if (members.size() > train::kMetricsMax) {
    return protocol_error(fmt::format("answered with {} metrics; at most {} are taken",
                                      members.size(), train::kMetricsMax));
  }
  for (const auto& member : members) {
    const std::string name(member.key().data(), member.key().size());
    if (!(trains ? train::is_train_metric_name(name) : train::is_metric_name(name))) {
      return protocol_error(fmt::format(
          "answered with a metric that is called '{}'; names are 1 to {} of a-z, A-Z, 0-9 and "
          "._-/@%, and {} beside 'metrics'",
          printable(name), train::kMetricNameBytesMax,
          trains ? "'loss' stands" : "'loss' and 'accuracy' stand"));
    }
    constexpr double kMax = update::kScalarMax;
    STARLING_ASSIGN(metrics[name], number(members, name, {-kMax, kMax}));
  }
  return metrics;
}

std::optional<std::string> text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

struct DescribedTensor {
  model::TensorInfo info;
  std::string dtype;
};

Result<DescribedTensor> read_tensor(const json::value& value) {
  const auto wrong = [](const std::string& tensor, const char* what) {
    return protocol_error(fmt::format("described the tensor '{}' {}", printable(tensor), what));
  };
  if (!value.is_object()) return wrong("", "not as an object");
  const json::object& object = value.get_object();
  const auto name = text(object, "name");
  if (!name) return wrong("", "without a name");
  const json::value* shape = object.if_contains("shape");
  if (shape == nullptr || !shape->is_array() || shape->get_array().size() > kDimensionsMax) {
    return wrong(*name, "without a shape of at most 8 dimensions");
  }
  DescribedTensor described{.info = {.name = *name}, .dtype = text(object, "dtype").value_or("")};
  model::TensorInfo& tensor = described.info;
  for (const json::value& extent : shape->get_array()) {
    if (!extent.is_int64() || extent.get_int64() < 0) {
      return wrong(*name, "with a dimension that is not a whole number");
    }
    tensor.shape.push_back(extent.get_int64());
  }
  const auto role = text(object, "role");
  if (role != "trainable" && role != "buffer" && role != "private") {
    return wrong(*name, "with a role that is none of 'trainable', 'buffer' and 'private'");
  }
  if (role == "buffer") tensor.role = model::Role::kBuffer;
  if (role == "private") tensor.role = model::Role::kPrivate;
  const json::value* rule = object.if_contains("rule");
  if (rule == nullptr || rule->is_null() || *rule == "mean") return described;
  if (*rule != "maximum" && *rule != "last") {
    return wrong(*name, "with a rule that is none of 'mean', 'maximum' and 'last'");
  }
  if (role != "buffer") return wrong(*name, "with a rule, which only buffers have");
  const bool is_last = *rule == "last";
  tensor.rule = is_last ? model::BufferRule::kLast : model::BufferRule::kMaximum;
  return described;
}

Result<void> read_tensors(const json::object& object, TrainerDescription& description) {
  const json::value* listed = object.if_contains("tensors");
  if (listed == nullptr || !listed->is_array()) {
    return protocol_error("described itself without its 'tensors'");
  }
  std::vector<model::TensorInfo> all, shared;
  for (const json::value& value : listed->get_array()) {
    STARLING_ASSIGN(DescribedTensor tensor, read_tensor(value));
    all.push_back(tensor.info);
    if (tensor.info.role != model::Role::kPrivate) {
      shared.push_back(std::move(tensor.info));
    } else {
      description.private_tensors.push_back(
          {std::move(tensor.info.name), std::move(tensor.info.shape), std::move(tensor.dtype)});
    }
  }
  // Names and sizes of private tensors are held to the same rules.
  const auto sound = model::Layout::make(std::move(all));
  auto layout = model::external_layout(std::move(shared));
  if (!sound || !layout) {
    const Error& error = sound ? layout.error() : sound.error();
    return protocol_error("described tensors of which no model can be: " +
                          escape_controls(error.message()));
  }
  description.layout = *std::move(layout);
  return {};
}

std::string describe_shortly(const PrivateTensor& tensor) {
  return fmt::format("{} [{}]{}{}", printable(tensor.name), fmt::join(tensor.shape, ", "),
                     tensor.dtype.empty() ? "" : " ", printable(tensor.dtype));
}

Result<std::vector<TrainerOperation>> read_operations(const json::object& object) {
  const json::value* listed = object.if_contains("operations");
  std::vector<TrainerOperation> operations;
  if (listed != nullptr && listed->is_array()) {
    for (const json::value& value : listed->get_array()) {
      if (!value.is_string()) continue;
      const std::string_view name(value.get_string().data(), value.get_string().size());
      const auto found = std::ranges::find(kOperationNames, name);
      if (found == kOperationNames.end()) continue;  // a later version's
      operations.push_back(static_cast<TrainerOperation>(found - kOperationNames.begin()));
    }
  }
  if (std::ranges::find(operations, TrainerOperation::kFit) == operations.end()) {
    return protocol_error("described itself without the operation 'fit'");
  }
  return operations;
}

}  // namespace

std::string_view to_string(TrainerOperation operation) {
  return kOperationNames[static_cast<std::size_t>(operation)];
}

bool TrainerDescription::can(TrainerOperation operation) const {
  return std::ranges::find(operations, operation) != operations.end();
}

Error cannot_do(const TrainerDescription& description, TrainerOperation operation) {
  std::vector<std::string_view> offered;
  for (const TrainerOperation each : description.operations) offered.push_back(to_string(each));
  return unsupported("unsupported-operation",
                     fmt::format("{} does not offer '{}', which this run needs of it; it offers {}",
                                 description.name, to_string(operation), join_names(offered)));
}

std::string summarize(const TrainerDescription& description) {
  std::string operations;
  for (const TrainerOperation operation : description.operations) {
    operations += (operations.empty() ? "" : ", ") + std::string(to_string(operation));
  }
  const model::Layout& layout = *description.layout;
  std::string text =
      fmt::format("{}: {}; {}, {}", description.name, operations,
                  counted(layout.tensors().size(), "tensor"), counted(layout.size(), "value"));
  if (description.rows > 0) text += fmt::format("; {}", counted(description.rows, "row"));
  if (description.held_out > 0) text += fmt::format(", {} held out", description.held_out);
  if (!description.private_tensors.empty()) {
    constexpr std::size_t kNamed = 10;
    text += "; private, and never sent: " +
            list_some(description.private_tensors, kNamed, describe_shortly);
  }
  return text;
}

Result<std::string> describe_request(std::uint64_t id, std::string_view client,
                                     std::string_view directory, std::string_view settings) {
  STARLING_ASSIGN(const std::string object, object_in_a_line(settings));
  return fmt::format(
      R"({{"id": {}, "op": "describe", "protocol": {}, "client": {}, "directory": {}, "settings": {}}})"
      "\n",
      id, kProtocolVersion, json_text(client), json_text(directory), object);
}

Result<std::string> task_request(std::uint64_t id, TrainerOperation operation,
                                 const TrainerTask& task, const TensorPlaces& places,
                                 std::optional<std::uint64_t> step) {
  STARLING_ASSIGN(const std::string settings, object_in_a_line(task.settings));
  std::string line = fmt::format(R"({{"id": {}, "op": "{}", "memory": {})", id,
                                 to_string(operation), places.memory_bytes);
  line += place_member("parameters", places.parameters) + place_member("result", places.result);
  if (operation == TrainerOperation::kGradient) {
    line += R"(, "step": )" + (step ? std::to_string(*step) : "null");
  }
  line += fmt::format(
      R"(, "task": {{"client": {}, "round": {}, "rounds": {}, "seed": {}, "train": {}, "settings": {}}}}})"
      "\n",
      json_text(task.client), task.round, task.rounds, task.seed, task.train, settings);
  return line;
}

std::string cancel_request(std::uint64_t id) {
  return fmt::format("{{\"op\": \"cancel\", \"id\": {}}}\n", id);
}

std::string stop_request() { return "{\"op\": \"stop\"}\n"; }

Error protocol_error(std::string_view what) {
  return rejected(std::string(kTrainerProtocol),
                  fmt::format("the trainer {}; core/client/TRAINER.md says what it may do", what));
}

Result<TrainerDescription> read_description(std::string_view line, std::uint64_t id) {
  STARLING_ASSIGN(const json::object answer, answer_of(line, id));
  const json::value* version = answer.if_contains("protocol");
  if (version == nullptr || *version != kProtocolVersion) {
    return protocol_error(fmt::format(
        "speaks version {} of the protocol, and this program version {}",
        version == nullptr ? "'?'" : printable(json::serialize(*version)), kProtocolVersion));
  }
  TrainerDescription description;
  const std::string name = text(answer, "name").value_or("");
  description.name = name.empty() ? "the trainer" : "the trainer '" + printable(name) + "'";
  STARLING_ASSIGN(description.operations, read_operations(answer));
  STARLING_ASSIGN(description.rows, count(answer, "rows"));
  STARLING_ASSIGN(description.held_out, count(answer, "held-out"));
  STARLING_TRY(read_tensors(answer, description));
  return description;
}

Result<TrainerAnswer> read_answer(std::string_view line, std::uint64_t id,
                                  TrainerOperation operation) {
  constexpr double kMax = update::kScalarMax;
  STARLING_ASSIGN(const json::object members, answer_of(line, id));
  TrainerAnswer answer;
  if (operation == TrainerOperation::kInitialize) return answer;
  STARLING_ASSIGN(answer.loss, number(members, "loss", {-kMax, kMax}));
  if (operation == TrainerOperation::kFit) {
    STARLING_ASSIGN(answer.weight, number(members, "weight", {update::kWeightMin, kMax}));
    STARLING_ASSIGN(answer.steps, count(members, "steps"));
    STARLING_ASSIGN(answer.metrics, read_metrics(members, operation));
    return answer;
  }
  STARLING_ASSIGN(answer.weight, number(members, "rows", {0, kWholeMax, true}));
  if (answer.weight == 0) {
    return rejected(
        "no-data", fmt::format("the trainer has no rows to {}",
                               operation == TrainerOperation::kEvaluate ? "evaluate on"
                                                                        : "compute a gradient on"));
  }
  if (operation == TrainerOperation::kEvaluate) {
    STARLING_ASSIGN(answer.accuracy, read_accuracy(members));
    STARLING_ASSIGN(answer.metrics, read_metrics(members, operation));
  }
  return answer;
}

}  // namespace starling::client

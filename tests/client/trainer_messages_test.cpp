// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_messages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/client/trainer_output.h"
#include "core/model/external_model.h"

namespace starling::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainerMessages, RequestsAreOneLineEach) {
  EXPECT_EQ(*describe_request(1, "cam-7", "/var/lib/x", "{\n  \"depth\": 18}"),
            R"({"id": 1, "op": "describe", "protocol": 1, "client": "cam-7", )"
            R"("directory": "/var/lib/x", "settings": {"depth":18}})"
            "\n");
  const TrainerTask task{
      .client = "cam \"7\"", .round = 3, .rounds = 20, .seed = 5, .train = R"({"batch-size": 32})"};
  const TensorPlaces places{.memory_bytes = 136, .parameters = {{0, 8}}, .result = {{64, 8}}};
  EXPECT_EQ(*task_request(2, TrainerOperation::kFit, task, places, {}),
            R"({"id": 2, "op": "fit", "memory": 136, "parameters": {"offset": 0, "bytes": 8}, )"
            R"("result": {"offset": 64, "bytes": 8}, "task": {"client": "cam \"7\"", "round": 3, )"
            R"("rounds": 20, "seed": 5, "train": {"batch-size": 32}, "settings": {}}})"
            "\n");
  EXPECT_THAT(*task_request(3, TrainerOperation::kGradient, task, places, 4),
              HasSubstr(R"("step": 4,)"));
  EXPECT_THAT(*task_request(3, TrainerOperation::kGradient, task, places, {}),
              HasSubstr(R"("step": null,)"));
}

TEST(TrainerMessages, SettingsThatAreNoObjectAreRefused) {
  for (const char* settings : {"", "[]", "{", "{}\n{\"op\": \"stop\"}"}) {
    const auto request = describe_request(1, "a", "b", settings);
    ASSERT_FALSE(request) << settings;
    EXPECT_EQ(request.error().code(), "setting-invalid");
  }
}

std::string description(const std::string& members) {
  return R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit", "later"], "tensors": )"
         R"([{"name": "w", "shape": [2, 3], "role": "trainable"},)"
         R"( {"name": "n", "shape": [], "role": "buffer"}])" +
         members + "}}";
}

TEST(TrainerMessages, ADescriptionIsRead) {
  const auto read = read_description(
      description(R"(, "name": "train.py", "rows": 600, "held-out": 100, "unknown": 1)"), 1);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->name, "the trainer 'train.py'");
  EXPECT_THAT(read->operations, ElementsAre(TrainerOperation::kFit));
  EXPECT_EQ(read->rows, 600U);
  EXPECT_EQ(read->held_out, 100U);
  EXPECT_EQ(read->layout->size(), 7U);
  EXPECT_EQ(read->layout->tensors()[0].name, "n");
  EXPECT_EQ(read->layout->tensors()[0].role, model::Role::kBuffer);
  EXPECT_EQ(read_description(description(""), 1)->rows, 0U);
}

TEST(TrainerMessages, ABufferMayHaveARule) {
  const auto layout = [](const std::string& rule) {
    const auto read = read_description(
        R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "n",)"
        R"( "shape": [], "role": "buffer")" +
            rule + "}]}}",
        1);
    EXPECT_TRUE(read) << read.error().message();
    return *read->layout;
  };
  EXPECT_EQ(layout(R"(, "rule": "maximum")").tensors()[0].rule, model::BufferRule::kMaximum);
  EXPECT_EQ(layout(R"(, "rule": "last")").tensors()[0].rule, model::BufferRule::kLast);
  EXPECT_EQ(layout(R"(, "rule": "mean")"), layout(""));
}

TEST(TrainerMessages, PrivateTensorsAreNoPartOfTheModelAndShown) {
  const auto read = read_description(
      R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [)"
      R"({"name": "head.weight", "shape": [10, 64], "dtype": "float16", "role": "private"},)"
      R"({"name": "w", "shape": [3], "role": "trainable"},)"
      R"({"name": "head\nbias", "shape": [], "role": "private"}]}})",
      1);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read->layout, *model::external_layout({{.name = "w", .shape = {3}}}).value());
  EXPECT_EQ(read->private_tensors, (std::vector<PrivateTensor>{{"head.weight", {10, 64}, "float16"},
                                                               {"head\nbias", {}, ""}}));
  EXPECT_EQ(summarize(*read),
            "the trainer: fit; 1 tensor, 3 values; private, and never sent: head.weight [10, 64] "
            "float16, head?bias []");
}

TEST(TrainerMessages, WrongDescriptionsAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"id": 1, "ok": {"protocol": 2}})", "version 2 of the protocol"},
      {R"({"id": 1, "ok": {}})", "version '?' of the protocol"},
      {R"({"id": 1, "ok": {"protocol": 1}})", "without the operation 'fit'"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"]}})", "without its 'tensors'"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": []}})", "no tensors"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [-1], "role": "buffer"}]}})",
       "'w' with a dimension"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [1], "role": "secret"}]}})",
       "'w' with a role"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [1], "role": "private"}]}})",
       "the model has no tensors"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [1], "role": "private"}, {"name": "w", "shape": [1], "role": "buffer"}]}})",
       "no model"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [1], "role": "buffer", "rule": "median"}]}})",
       "'w' with a rule that is none of 'mean', 'maximum' and 'last'"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [1], "role": "trainable", "rule": "maximum"}]}})",
       "'w' with a rule, which only buffers have"},
      {R"({"id": 1, "ok": {"protocol": 1, "operations": ["fit"], "tensors": [{"name": "w",)"
       R"( "shape": [1099511627776, 1099511627776], "role": "buffer"}]}})",
       "no model"},
      {description(R"(, "rows": -1)"), "rows = -1"},
      {description(R"(, "rows": 1.5)"), "rows = 1.5"},
      {description(R"(, "rows": "6")"), "'rows' that is not a number"},
  };
  for (const auto& [line, sentence] : wrong) {
    const auto read = read_description(line, 1);
    ASSERT_FALSE(read) << line;
    EXPECT_EQ(read.error().code(), "trainer-protocol") << line;
    EXPECT_THAT(read.error().message(), HasSubstr(sentence));
    EXPECT_THAT(read.error().message(), HasSubstr("the trainer "));
  }
}

TEST(TrainerMessages, AnswersAreRead) {
  using enum TrainerOperation;
  const auto fit =
      read_answer(R"({"id": 7, "ok": {"weight": 600, "loss": 0.5, "steps": 19}})", 7, kFit);
  ASSERT_TRUE(fit) << fit.error().message();
  EXPECT_EQ(fit->weight, 600);
  EXPECT_EQ(fit->loss, 0.5);
  EXPECT_EQ(fit->steps, 19U);
  EXPECT_EQ(fit->metrics, train::Metrics());
  EXPECT_EQ(read_answer(R"({"id": 7, "ok": {"weight": 1, "loss": -2}})", 7, kFit)->steps, 0U);
  const auto with = read_answer(
      R"({"id": 7, "ok": {"weight": 1, "loss": 1, "metrics": {"mae": 2, "accuracy": 0.5}}})", 7,
      kFit);
  ASSERT_TRUE(with) << with.error().message();
  EXPECT_EQ(with->metrics, (train::Metrics{{"accuracy", 0.5}, {"mae", 2}}));
  const auto found =
      read_answer(R"({"id": 7, "ok": {"rows": 4, "loss": 1, "accuracy": 1}})", 7, kEvaluate);
  EXPECT_EQ(found->accuracy, 1);
  EXPECT_EQ(found->weight, 4);
  EXPECT_EQ(found->metrics, train::Metrics());
  EXPECT_TRUE(read_answer(R"({"id": 7, "ok": {}})", 7, kInitialize));
  EXPECT_EQ(read_answer(R"({"id": 7, "ok": {"rows": 0, "loss": 0}})", 7, kGradient).error().code(),
            "no-data");
}

TEST(TrainerMessages, AnEvaluationNeedNoAccuracyAndMayHaveMetrics) {
  using enum TrainerOperation;
  const auto found = read_answer(
      R"({"id": 7, "ok": {"rows": 4, "loss": -3.5, "metrics": {"mae": 0.25, "recall@10/b": -2}}})",
      7, kEvaluate);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->loss, -3.5);
  EXPECT_EQ(found->accuracy, std::nullopt);
  EXPECT_EQ(found->metrics, (train::Metrics{{"mae", 0.25}, {"recall@10/b", -2}}));
  const auto nulls =
      read_answer(R"({"id": 7, "ok": {"rows": 4, "loss": 1, "accuracy": null, "metrics": null}})",
                  7, kEvaluate);
  ASSERT_TRUE(nulls);
  EXPECT_EQ(nulls->accuracy, std::nullopt);
  EXPECT_EQ(nulls->metrics, train::Metrics());
}

TEST(TrainerMessages, MetricsThatNobodyCanUseAreRefusedByName) {
  const auto error = [](const std::string& metrics) {
    const auto read =
        read_answer(R"({"id": 7, "ok": {"rows": 1, "loss": 1, "metrics": )" + metrics + "}}", 7,
                    TrainerOperation::kEvaluate);
    return read ? std::string("none") : read.error().code() + ": " + read.error().message();
  };
  const auto named = [](const std::string& name) { return "{\"" + name + "\": 1}"; };
  std::string many = "{";
  for (int i = 0; i < 33; ++i) many += fmt::format("{}\"m{}\": 1", i > 0 ? ", " : "", i);
  EXPECT_THAT(error(many + "}"),
              HasSubstr("trainer-protocol: the trainer answered with 33 metrics"));
  EXPECT_THAT(error("[1]"), HasSubstr("'metrics' that is not an object"));
  EXPECT_THAT(error(R"({"accuracy": 1})"), HasSubstr("'loss' and 'accuracy' stand beside"));
  const auto fit =
      read_answer(R"({"id": 7, "ok": {"weight": 1, "loss": 1, "metrics": {"loss": 2}}})", 7,
                  TrainerOperation::kFit);
  ASSERT_FALSE(fit);
  EXPECT_THAT(fit.error().message(), HasSubstr("called 'loss'"));
  EXPECT_THAT(fit.error().message(), HasSubstr("and 'loss' stands beside 'metrics'"));
  EXPECT_THAT(error(R"({"mae": "1"})"), HasSubstr("'mae' that is not a number"));
  EXPECT_THAT(error(R"({"mae": NaN})"), HasSubstr("diverged"));
  EXPECT_THAT(error(R"({"mae": 1e400})"), HasSubstr("diverged"));
  EXPECT_THAT(error(R"({"mae": 1e200})"), HasSubstr("mae = 1e+200"));
  EXPECT_EQ(error(named(std::string(64, 'm'))), "none");
  for (const std::string& name :
       {std::string(), std::string("loss"), std::string("accuracy"), std::string("a b"),
        std::string("a\\n"), std::string("\xC3\xA9"), std::string(65, 'm')}) {
    EXPECT_THAT(error(named(name)),
                HasSubstr("trainer-protocol: the trainer answered with a metric "
                          "that is called '"));
  }
}

TEST(TrainerMessages, WrongAnswersAreRefusedByName) {
  using enum TrainerOperation;
  const std::vector<std::tuple<std::string, TrainerOperation, std::string, std::string>> wrong = {
      {"", kFit, "trainer-protocol", "not a JSON object"},
      {R"({"id": 7, "ok": {}} {})", kFit, "trainer-protocol", "not a JSON object"},
      {R"({"ok": {}})", kFit, "trainer-protocol", "answered to '' where 7 was asked"},
      {R"({"id": "7", "ok": {}})", kFit, "trainer-protocol", "where 7 was asked"},
      {R"({"id": -7, "ok": {}})", kFit, "trainer-protocol", "where 7 was asked"},
      {R"({"id": 7, "ok": 1})", kFit, "trainer-protocol", "'ok' that is not an object"},
      {R"({"id": 7, "error": {}})", kFit, "trainer-protocol", "no message"},
      {R"({"id": 7, "ok": {"weight": 1}})", kFit, "trainer-protocol", "without 'loss'"},
      {R"({"id": 7, "ok": {"weight": -1, "loss": 1}})", kFit, "trainer-protocol", "weight = -1"},
      {R"({"id": 7, "ok": {"weight": 1e-7, "loss": 1}})", kFit, "trainer-protocol",
       "weight = 1e-07"},
      {R"({"id": 7, "ok": {"weight": 1, "loss": 1e101}})", kFit, "trainer-protocol",
       "loss = 1e+101"},
      {R"({"id": 7, "ok": {"weight": 1, "loss": 1, "steps": -1}})", kFit, "trainer-protocol",
       "steps = -1"},
      {R"({"id": 7, "ok": {"weight": 1, "loss": 1e400}})", kFit, "diverged", "infinite"},
      {R"({"id": 7, "ok": {"weight": 1, "loss": -Infinity}})", kFit, "diverged", "infinite"},
      {R"({"id": 7, "ok": {"rows": 1, "loss": 1, "accuracy": 1.1}})", kEvaluate, "trainer-protocol",
       "accuracy = 1.1"},
      {R"({"id": 7, "ok": {"rows": 1, "accuracy": 1}})", kEvaluate, "trainer-protocol",
       "without 'loss'"},
      {R"({"id": 7, "ok": {"rows": 0.5, "loss": 1}})", kGradient, "trainer-protocol", "rows = 0.5"},
  };
  for (const auto& [line, operation, code, sentence] : wrong) {
    const auto read = read_answer(line, 7, operation);
    ASSERT_FALSE(read) << line;
    EXPECT_EQ(read.error().code(), code) << line << ": " << read.error().message();
    EXPECT_THAT(read.error().message(), HasSubstr(sentence));
  }
}

TEST(TrainerMessages, ATrainersOwnErrorKeepsItsCode) {
  const auto error = [](const std::string& text) {
    return read_answer(R"({"id": 7, "error": )" + text + "}", 7, TrainerOperation::kFit).error();
  };
  EXPECT_EQ(error(R"({"code": "no-data", "message": "cam-7 has no rows"})"),
            rejected("no-data", "the trainer says: cam-7 has no rows"));
  EXPECT_EQ(error(R"({"message": "two\nlines"})"),
            rejected("trainer-failed", "the trainer says: two\\nlines"));
  EXPECT_EQ(error(R"({"code": "trainer-protocol", "message": "x"})").code(), "trainer-failed");
  EXPECT_EQ(error(R"({"code": "stopped", "message": "x"})").kind(), ErrorKind::kRetry);
  EXPECT_EQ(error(R"({"code": "Bad", "message": "x"})").code(), "trainer-protocol");
  EXPECT_EQ(error(R"({"code": ")" + std::string(41, 'a') + R"(", "message": "x"})").code(),
            "trainer-protocol");
}

class Lines final : public Log {
 public:
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

TEST(TrainerOutput, LinesAreEscapedAndCut) {
  Lines log;
  TrainerOutput output(log);
  const TimePoint now{};
  output.add("one\ntw", now);
  output.add("o\x1b[1m\r\n10 %\r20 %\rdone\n\n" + std::string(100'000, 'x') + "\nrest", now);
  EXPECT_EQ(output.last_line().size(), TrainerOutput::kLineBytesMax);
  output.end(now);
  ASSERT_EQ(log.lines.size(), 6U);
  EXPECT_EQ(log.lines[0], "trainer: one");
  EXPECT_EQ(log.lines[1], "trainer: two\\x1b[1m");
  EXPECT_EQ(log.lines[2], "trainer: done");
  EXPECT_EQ(log.lines[3], "trainer: ");
  EXPECT_LT(log.lines[4].size(), 1100U);
  EXPECT_EQ(log.lines[5], "trainer: rest");
  EXPECT_EQ(output.last_line(), "rest");
}

TEST(TrainerOutput, AFloodIsCounted) {
  Lines log;
  TrainerOutput output(log);
  TimePoint now{};
  for (int i = 0; i < 12'945; ++i) output.add(std::to_string(i) + "\n", now);
  EXPECT_EQ(log.lines.size(), 600U);
  EXPECT_EQ(output.last_line(), "12944") << "although the log did not get it";
  output.pause();
  EXPECT_EQ(log.lines.back(), "trainer: 12345 lines were dropped");
  now += std::chrono::minutes(1);
  output.add("x\n", now);
  EXPECT_EQ(log.lines.back(), "trainer: x");
  for (int i = 0; i < 600; ++i) output.add("y\n", now);
  now += std::chrono::minutes(1);
  output.add("z\n", now);
  EXPECT_EQ(log.lines[log.lines.size() - 2], "trainer: 1 line was dropped");
}

}  // namespace
}  // namespace starling::client

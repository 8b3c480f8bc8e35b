// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_records.h"
#include "coordinator/rounds/run_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/json.hpp>
#include <cmath>

#include "core/base/durable_file.h"
#include "core/client/abilities.h"
#include "core/store/sqlite_store.h"
#include "tests/coordinator/dense_vectors.h"
#include "tests/coordinator/flaky_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RoundSummary summary() {
  return {.run = RunId(1),
          .round = 3,
          .attempt = 2,
          .committed = true,
          .contributors = {{"a", TaskId(1), 100}, {"b", TaskId(2), 50}},
          .failures = {{"cam-7", "deadline", "no update came within 61.0 s", 2'100'000, 7}},
          .elapsed = 1930ms,
          .bytes_in = 38'400'000,
          .bytes_out = 1'000};
}

// A run of a small model without evaluation data, and its initial model.
struct SmallRun {
  RunStart start_after(Round last, const std::vector<store::RoundRecord>& rounds) const {
    std::optional<store::RoundRecord> open;
    for (const store::RoundRecord& record : rounds) {
      if (record.state == store::RoundState::kOpen) open = record;
    }
    return to_run_start(RunId(1), context, {{RunId(1), last, {}}, model, {}, {}}, rounds, open);
  }

  RunContext context = [] {
    Job job;
    job.training.model.kind = "softmax-regression";
    job.training.data = {{4}, 2};
    job.evaluate.every = 0;
    job.round.cohort = 3;
    return prepare_run(job, nullptr).value();
  }();
  const model::Snapshot model =
      std::make_shared<const model::Parameters>(model::initial_parameters(*context.model, 1));
};

TEST(RunRecords, ARestartKnowsWhatEachClientContributedLast) {
  const SmallRun small;
  const auto round = [](Round number, store::RoundState state, std::uint64_t task) {
    store::RoundRecord record;
    record.key = {RunId(1), number, 1};
    record.state = state;
    record.result.contributions = {{"a", TaskId(task), 1, 1}};
    return record;
  };
  auto rounds = {round(1, store::RoundState::kCommitted, 1),
                 round(2, store::RoundState::kAbandoned, 2)};  // withdrawn
  const RunStart start = small.start_after(1, rounds);
  EXPECT_EQ(start.counted.last_of("a"), (protocol::CountedTask{TaskId(1), 1}));
}

TEST(RunRecords, LinesReadAsPeopleExpect) {
  RoundOutcome outcome{.train_loss = 0.41271,
                       .measured = Measured{.loss = 0.43849, .accuracy = 0.8421}};
  const auto lines = round_lines(summary(), &outcome, 20);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0],
            "[round 3/20] 2 updates, 1 failure (cam-7: deadline, no update came within 61.0 s, "
            "2.1 MB received)");
  EXPECT_EQ(lines[1],
            "[round 3/20] train loss 0.4127  eval loss 0.4385  accuracy 0.8421  1.93 s  in 38.4 MB"
            "  out 1.0 kB");
}

TEST(RunRecords, LinesOfAnEvaluationByClientsHaveTheSameFacts) {
  RoundSummary evaluation = summary();
  evaluation.kind = protocol::TaskKind::kEvaluate;
  evaluation.resumed = true;
  const RoundOutcome outcome{.measured =
                                 Measured{.federated = true, .loss = 0.43849, .accuracy = 0.8421}};
  const auto lines = round_lines(evaluation, &outcome, 20);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("[round 3/20] 2 evaluations, 1 failure (cam-7: ")) << lines[0];
  EXPECT_EQ(lines[1],
            "[round 3/20] held-out loss 0.4385  accuracy 0.8421  1.93 s since the restart  in 38.4 "
            "MB  out 1.0 kB");
}

TEST(RunRecords, AnEvaluationWithoutAccuracyHasItsMetrics) {
  RoundSummary evaluation = summary();
  evaluation.kind = protocol::TaskKind::kEvaluate;
  RoundOutcome outcome{.measured = Measured{.federated = true, .loss = -1.5}};
  EXPECT_TRUE(round_lines(evaluation, &outcome, 20)[1].starts_with(
      "[round 3/20] held-out loss -1.5000  1.93 s  "));
  outcome.measured->metrics = {{"mae", 0.25}, {"r2", -0.5}};
  EXPECT_TRUE(round_lines(evaluation, &outcome, 20)[1].starts_with(
      "[round 3/20] held-out loss -1.5000  mae 0.2500  r2 -0.5000  1.93 s  "));
  for (const char* name : {"s", "t", "u", "v"}) outcome.measured->metrics[name] = 1;
  EXPECT_THAT(round_lines(evaluation, &outcome, 20)[1],
              HasSubstr("  u 1.0000  and 1 metric more  1.93 s"));
  const store::AttemptResult record = to_record(evaluation, &outcome);
  EXPECT_EQ(record.evaluation, (store::Evaluation{-1.5, std::nullopt, outcome.measured->metrics}));
}

// Whoever reads a line must not take them for those of the evaluation.
TEST(RunRecords, MetricsOfATrainingAreNamedAsSuch) {
  RoundOutcome outcome{.train_loss = 0.5, .train_metrics = {{"accuracy", 0.75}, {"mae", 2}}};
  outcome.measured = Measured{.loss = 1, .accuracy = 0.5, .metrics = {{"mae", 3}}};
  EXPECT_THAT(round_lines(summary(), &outcome, 20)[1],
              StartsWith("[round 3/20] train loss 0.5000  train accuracy 0.7500  train mae 2.0000  "
                         "eval loss 1.0000  accuracy 0.5000  mae 3.0000  1.93 s"));
  for (const char* name : {"p", "q", "r", "s"}) outcome.train_metrics[name] = 1;
  EXPECT_THAT(round_lines(summary(), &outcome, 20)[1],
              HasSubstr("  train r 1.0000  and 1 train metric more  eval loss"));
  const store::AttemptResult record = to_record(summary(), &outcome);
  EXPECT_EQ(record.train_metrics, outcome.train_metrics);
  EXPECT_EQ(record.evaluation.metrics, outcome.measured->metrics);
}

TEST(RunRecords, JsonHasMetricsByNameAndNullWhereThereAreNone) {
  const store::Run run{.id = RunId(1), .name = "n", .state = store::RunState::kRunning};
  const auto record = [](store::PhaseKind kind, Round round) {
    store::RoundRecord made{.key = {RunId(1), round, 1, kind},
                            .state = store::RoundState::kCommitted};
    if (kind == store::PhaseKind::kTrain) made.model = Sha256Digest();
    return made;
  };
  auto evaluated = record(store::PhaseKind::kEvaluate, 1);
  evaluated.result.evaluation.loss = -1;
  evaluated.result.evaluation.metrics = {{"mae", 0.25}};
  auto train = record(store::PhaseKind::kTrain, 1);
  train.result.train_metrics = {{"mae", 0.5}};
  const auto value = run_to_json(run, {train, record(store::PhaseKind::kTrain, 2)}, {evaluated});
  const auto& rounds = value.at("rounds").as_array();
  EXPECT_EQ(rounds[0].at("federated_metrics"), (boost::json::value{{"mae", 0.25}}));
  EXPECT_EQ(rounds[0].at("train_metrics"), (boost::json::value{{"mae", 0.5}}));
  EXPECT_EQ(rounds[0].at("federated_loss"), -1.0);
  for (const char* key : {"federated_accuracy", "eval_metrics"}) {
    EXPECT_TRUE(rounds[0].at(key).is_null()) << key;
  }
  EXPECT_TRUE(rounds[1].at("federated_metrics").is_null());
  EXPECT_TRUE(rounds[1].at("train_metrics").is_null());
}

TEST(RunRecords, ATrainersMetricEndsARunInItsDirection) {
  std::vector<store::RoundRecord> evaluations(4);
  constexpr std::array kMae = {0.5, 0.4, 0.45, 0.6};
  for (Round round : {1, 2, 3, 4}) {
    store::RoundRecord& made = evaluations[round - 1];
    made = {.key = {RunId(1), round, 1, store::PhaseKind::kEvaluate},
            .state = store::RoundState::kCommitted};
    made.result.evaluation = {1, std::nullopt, {{"mae", kMae[round - 1]}}};
  }
  StopOptions stop{.metric = "federated-mae", .mode = "min", .patience = 2};
  EXPECT_EQ(replay_stopping(stop, {}, evaluations).reason(),
            "federated-mae has not improved for 2 evaluations since round 2 (0.4000)");
  stop.mode = "max";
  EXPECT_EQ(replay_stopping(stop, {}, evaluations).reason(), std::nullopt);
  stop.metric = "mae";
  EXPECT_TRUE(replay_stopping(stop, {}, evaluations).unmeasured()) << "of the coordinator's";
  evaluations[1].result.evaluation.metrics.clear();
  stop = {.metric = "federated-mae", .mode = "min", .patience = 2};
  EXPECT_EQ(replay_stopping(stop, {}, evaluations).reason(), std::nullopt)
      << "a round that does not say it counts neither way";
}

// An accuracy that nobody says is neither an improvement nor a failure to improve.
TEST(RunRecords, AMetricThatIsMissingNeverEndsARun) {
  const StopOptions stop{.metric = "federated-accuracy", .patience = 1};
  std::vector<store::RoundRecord> evaluations(3);
  for (Round round : {1, 2, 3}) {
    store::RoundRecord& made = evaluations[round - 1];
    made = {.key = {RunId(1), round, 1, store::PhaseKind::kEvaluate},
            .state = store::RoundState::kCommitted};
    made.result.evaluation.loss = 1;
  }
  EXPECT_EQ(replay_stopping(stop, {}, evaluations).reason(), std::nullopt);
  EXPECT_TRUE(replay_stopping(stop, {}, evaluations).unmeasured());
  EXPECT_NE(replay_stopping({.metric = "federated-loss", .patience = 1}, {}, evaluations).reason(),
            std::nullopt);
}

TEST(RunRecords, ALineNamesClientsOfTheSameReasonTogether) {
  RoundSummary many = summary();
  many.failures.clear();
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    many.failures.push_back({name, "round-closed", "it had enough", 1000, 0});
  }
  many.failures.push_back({"g", "round-closed", "too late", 0, 0});
  EXPECT_EQ(round_lines(many, nullptr, 20)[0],
            "[round 3/20] 2 updates, 7 failures (a, b, c, d, e and 1 more: round-closed, it had "
            "enough, 6.0 kB received; g: round-closed, too late)");
  for (char name = 'h'; name < 'p'; ++name) {
    many.failures.push_back({std::string(1, name), "bad", std::string("reason ") + name, 0, 0});
  }
  const std::string line = round_lines(many, nullptr, 20)[0];
  EXPECT_TRUE(line.ends_with("j: bad, reason j; and 5 more)")) << line;
}

TEST(RunRecords, AHugeLossStaysShort) {
  RoundOutcome outcome{.train_loss = 1e100, .measured = Measured{.loss = 1234.5, .accuracy = 0.5}};
  EXPECT_TRUE(round_lines(summary(), &outcome, 20)[1].starts_with(
      "[round 3/20] train loss 1.00e+100  eval loss 1234.5000  accuracy 0.5000  "));
}

TEST(RunRecords, JsonHasTheContractsKeysAndReplays) {
  const store::Run run{.id = RunId(1), .name = "n", .state = store::RunState::kRunning, .seed = 9};
  store::RoundRecord committed{
      .key = {RunId(1), 3, 2}, .state = store::RoundState::kCommitted, .model = Sha256Digest()};
  committed.cohort = {{"a", TaskId(1)}, {"b", TaskId(2)}, {"cam-7", TaskId(3)}};
  committed.population = 6;
  committed.result = to_record(summary(), nullptr);
  const store::RoundRecord open{.key = {RunId(1), 4, 1}, .state = store::RoundState::kOpen};
  const auto value = run_to_json(run, {committed, open});
  const auto& rounds = value.at("rounds").as_array();
  for (const char* key :
       {"round", "attempt", "state", "cohort", "updates", "failures", "train_loss", "eval_loss",
        "eval_accuracy", "seconds", "bytes_in", "bytes_out", "model_sha256", "abandoned"}) {
    EXPECT_TRUE(rounds[0].as_object().contains(key)) << key;
    EXPECT_TRUE(rounds[1].as_object().contains(key)) << key;
  }
  EXPECT_EQ(rounds[0].at("cohort"), 3);
  EXPECT_EQ(rounds[0].at("updates"), 2);
  EXPECT_EQ(rounds[0].at("failures").at(0).at("bytes"), 2'100'007);
  EXPECT_TRUE(rounds[0].at("train_loss").is_null());
  EXPECT_TRUE(rounds[1].at("seconds").is_null());
  const auto recorded = parse_recorded_run(boost::json::serialize(value));
  ASSERT_TRUE(recorded);
  EXPECT_EQ(recorded->seed, 9U);
  ASSERT_EQ(recorded->replay.contributors.size(), 1U) << "an open round has no contributors yet";
  EXPECT_EQ(recorded->replay.contributors.at(3), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(recorded->replay.populations.at(3), 6U);
  EXPECT_TRUE(recorded->replay.lost.at(3).empty());
  EXPECT_EQ(recorded->models.at(3), Sha256Digest().hex());
  EXPECT_EQ(recorded->instruction_set, "") << "that of the devices is not known";
}

TEST(RunRecords, JsonHasThePopulationAndWhatTheClientsFound) {
  const store::Run run{.id = RunId(1), .name = "n", .state = store::RunState::kRunning, .seed = 9};
  store::RoundRecord trained{.key = {RunId(1), 1, 1},
                             .state = store::RoundState::kCommitted,
                             .model = sha256(as_bytes("m1")),
                             .population = 12};
  trained.result.evaluation = {0.25, 0.75};
  store::RoundRecord evaluated{
      .key = {RunId(1), 1, 1, store::PhaseKind::kEvaluate},
      .state = store::RoundState::kCommitted,
      .cohort = {{"a", TaskId(1)}, {"b", TaskId(2)}, {"c", TaskId(3)}, {"cam-7", TaskId(4)}},
      .base_model = sha256(as_bytes("m1"))};
  evaluated.result = {
      .contributions = {{"a", TaskId(1), 50}, {"b", TaskId(2), 150}, {"c", TaskId(3), 250}},
      .failures = {{"cam-7", "no-data", "it has no rows", 5, 2}},
      .evaluation = {0.5, std::nullopt},
      .seconds = 1.5,
      .bytes_in = 7,
      .bytes_out = 4000};
  const store::RoundRecord old{.key = {RunId(1), 2, 1}, .state = store::RoundState::kCommitted};
  const auto value = run_to_json(run, {trained, old}, {evaluated});
  const auto& first = value.at("rounds").at(0);
  EXPECT_EQ(first.at("population"), 12);
  EXPECT_EQ(first.at("federated_state"), "committed");
  EXPECT_EQ(first.at("federated_asked"), 4);
  EXPECT_EQ(first.at("federated_loss"), 0.5);
  EXPECT_TRUE(first.at("federated_accuracy").is_null());
  EXPECT_EQ(first.at("federated_clients"), 3);
  EXPECT_EQ(first.at("federated_weight"), 450.0);
  EXPECT_EQ(first.at("federated_failures").at(0).at("client"), "cam-7");
  EXPECT_EQ(first.at("federated_failures").at(0).at("reason"), "it has no rows");
  EXPECT_TRUE(first.at("federated_abandoned").is_null());
  EXPECT_EQ(first.at("federated_seconds"), 1.5);
  EXPECT_EQ(first.at("federated_bytes_in"), 7);
  EXPECT_EQ(first.at("federated_bytes_out"), 4000);
  EXPECT_EQ(first.at("eval_loss"), 0.25);
  const auto& second = value.at("rounds").at(1);
  for (const char* key :
       {"population", "federated_state", "federated_asked", "federated_loss", "federated_accuracy",
        "federated_clients", "federated_weight", "federated_abandoned", "federated_seconds",
        "federated_bytes_in", "federated_bytes_out"}) {
    EXPECT_TRUE(second.at(key).is_null()) << key;
  }
  EXPECT_TRUE(second.at("federated_failures").as_array().empty());
}

TEST(RunRecords, JsonShowsAnEvaluationThatCameToNothing) {
  const store::Run run{.id = RunId(1), .name = "n", .state = store::RunState::kRunning, .seed = 9};
  const store::RoundRecord trained{.key = {RunId(1), 1, 2},
                                   .state = store::RoundState::kCommitted,
                                   .model = sha256(as_bytes("m1 again"))};
  const auto shown = [&](const std::vector<store::RoundRecord>& evaluations) {
    return run_to_json(run, {trained}, evaluations).at("rounds").at(0);
  };
  store::RoundRecord evaluation{.key = {RunId(1), 1, 1, store::PhaseKind::kEvaluate},
                                .cohort = {{"a", TaskId(1)}, {"b", TaskId(2)}},
                                .base_model = sha256(as_bytes("m1 again"))};
  evaluation.result.bytes_out = 40;
  const auto open = shown({evaluation});
  EXPECT_EQ(open.at("federated_state"), "open");
  EXPECT_EQ(open.at("federated_asked"), 2);
  EXPECT_EQ(open.at("federated_bytes_out"), 40);
  EXPECT_TRUE(open.at("federated_clients").is_null());
  evaluation.state = store::RoundState::kAbandoned;
  evaluation.abandonment = store::Abandonment{"too-few-updates", "0 of the 1 evaluations"};
  evaluation.result.failures = {{"a", "deadline", "no evaluation came", 0, 40},
                                {"b", "no-data", "it has no rows"}};
  const auto abandoned = shown({evaluation});
  EXPECT_EQ(abandoned.at("federated_state"), "abandoned");
  EXPECT_EQ(abandoned.at("federated_asked"), 2);
  EXPECT_EQ(abandoned.at("federated_clients"), 0);
  EXPECT_EQ(abandoned.at("federated_abandoned").at("reason"), "0 of the 1 evaluations");
  EXPECT_EQ(abandoned.at("federated_failures").as_array().size(), 2U);
  EXPECT_EQ(abandoned.at("federated_failures").at(0).at("bytes"), 40);
  EXPECT_TRUE(abandoned.at("federated_loss").is_null());
  evaluation.base_model = sha256(as_bytes("m1"));
  EXPECT_TRUE(shown({evaluation}).at("federated_state").is_null())
      << "of the model that was withdrawn";
}

TEST(RunRecords, WhoCountsForMoreThanAllOthersIsNamed) {
  const store::Run run{.id = RunId(1), .name = "n", .state = store::RunState::kRunning, .seed = 9};
  const auto warnings = [&](std::vector<store::Contribution> contributions) {
    store::RoundRecord round{.key = {RunId(1), 1, 1}, .state = store::RoundState::kCommitted};
    round.result.contributions = std::move(contributions);
    const auto value = run_to_json(run, {round});
    return boost::json::serialize(value.at("rounds").at(0).at("warnings"));
  };
  EXPECT_EQ(warnings({{"a", TaskId(1), 10, 1.0}, {"b", TaskId(2), 20, 1.0}}), "[]") << "of two";
  EXPECT_EQ(
      warnings({{"a", TaskId(1), 10, 1.0}, {"b", TaskId(2), 20, 1.0}, {"c", TaskId(3), 30, 1.0}}),
      "[]");
  const std::string heavy = warnings(
      {{"a", TaskId(1), 600, 0.5}, {"b", TaskId(2), 1e6, 0.5}, {"c", TaskId(3), 600, 0.5}});
  EXPECT_NE(heavy.find("b counted for more than the 2 others together: 99.9 %"), heavy.npos)
      << heavy;
  const std::string large =
      warnings({{"a", TaskId(1), 10, 0.5}, {"b", TaskId(2), 10, 0.5}, {"c", TaskId(3), 10, 50.0}});
  EXPECT_NE(large.find("c counted"), large.npos) << large;
  const std::string old = warnings({{"a", TaskId(1), 10, std::nullopt},
                                    {"b", TaskId(2), 10, std::nullopt},
                                    {"c", TaskId(3), 100, std::nullopt}});
  EXPECT_NE(old.find("c counted"), old.npos) << "by weight alone, in rounds without norms";
}

TEST(RunRecords, NormsAreOfTheLastCommittedRounds) {
  const SmallRun run;
  std::vector<store::RoundRecord> rounds;
  for (Round round = 1; round <= 9; ++round) {
    const auto state = round == 6 ? store::RoundState::kAbandoned : store::RoundState::kCommitted;
    rounds.push_back({.key = {RunId(1), round, 1}, .state = state});
    const auto norm = round == 4 ? std::nullopt : std::optional(1.0 * round);
    rounds.back().result.contributions = {{"a", TaskId(round), 1, norm}};
  }
  const auto norms_after = [&](Round last) { return run.start_after(last, rounds).norms; };
  EXPECT_EQ(norms_after(8), (RecentNorms{{2}, {3}, {5}, {7}, {8}})) << "of those that have any";
  EXPECT_EQ(norms_after(2), (RecentNorms{{1}, {2}}));
  EXPECT_EQ(norms_after(0), RecentNorms());
}

TEST(RoundAggregate, AnUpdateAboveTheNormBoundLeavesTheSumAsItWas) {
  const SmallRun run;
  const auto& model = run.model;
  const update::Schema schema = run.context.schema();
  const auto add = [&](RoundAggregate& aggregate, std::uint64_t task, float value) {
    const std::vector<float> values(model->size(), value);
    const SharedBytes payload = SharedBytes::own(to_bytes(as_bytes(std::span(values))));
    return aggregate.add({.task = TaskId(task),
                          .base = {RunId(1), 0, model->sha256()},
                          .weight = 1,
                          .vectors = testing::dense_vectors(schema),
                          .scalars = {{"train_loss", 1}},
                          .payload_bytes = payload.size(),
                          .payload_checksum = checksum(payload.view())},
                         payload);
  };
  const auto digest = [&](std::optional<double> bound, bool with_large) {
    BeginRound phase{.run = RunId(1), .round = 1, .schema = schema, .norm_max = bound};
    phase.base = {{RunId(1), 0, model->sha256()}, model, {}, {}};
    auto aggregate =
        RoundAggregate::begin(std::make_shared<const RunContext>(run.context), phase).value();
    EXPECT_NEAR(add(*aggregate, 1, 0.5F).value(),
                0.5 * std::sqrt(static_cast<double>(model->size())), 1e-12);
    if (with_large) {
      const auto refused = add(*aggregate, 2, 1e6F);
      EXPECT_EQ(refused.has_error() ? refused.error().code() : "counted", "norm-above-bound");
    }
    return std::move(*aggregate).finish(nullptr).value().next->version.sha256;
  };
  const auto honest = digest(std::nullopt, false);
  EXPECT_EQ(digest(100.0, true), honest);
  EXPECT_EQ(digest(100.0, false), honest);
}

TEST(RoundAggregate, SumsTheSmallValuesOfQFedAvg) {
  SmallRun run;
  Job job = run.context.job;
  job.training.strategy.name = "qfedavg";
  run.context = prepare_run(job, nullptr).value();
  const update::Schema schema = run.context.schema();
  BeginRound phase{.run = RunId(1), .round = 1, .schema = schema};
  phase.base = {{RunId(1), 0, run.model->sha256()}, run.model, {}, {}};
  auto aggregate =
      RoundAggregate::begin(std::make_shared<const RunContext>(run.context), phase).value();
  const std::vector<float> values(run.model->size(), 1e-30F);
  const SharedBytes payload = SharedBytes::own(to_bytes(as_bytes(std::span(values))));
  ASSERT_TRUE(aggregate->add({.task = TaskId(1),
                              .base = {RunId(1), 0, run.model->sha256()},
                              .weight = 1,
                              .vectors = testing::dense_vectors(schema),
                              .scalars = {{"train_loss", 1}, {"curvature", 1e-29}},
                              .payload_bytes = payload.size(),
                              .payload_checksum = checksum(payload.view())},
                             payload));
  const auto outcome = std::move(*aggregate).finish(nullptr).value();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(outcome.next->model->values()[i] - run.model->values()[i], 0.1, 1e-6);
  }
}

TEST(RunRecords, ReplayRefusesWhatIsNoRun) {
  for (const char* bad :
       {"", "[]", "{}", R"({"seed": 1, "rounds": 3})", R"({"rounds": [ ]})",
        R"({"seed": 1, "rounds": [1]})", R"({"seed": 1, "rounds": [{"state": "committed"}]})",
        R"({"seed": 1, "rounds": [{"state": "committed", "round": 1, "contributors": []}]})",
        R"({"seed": 1, "rounds": [{"state": "committed", "round": 1, "contributors": [{}]}]})"}) {
    const auto recorded = parse_recorded_run(bad);
    ASSERT_FALSE(recorded) << bad;
    EXPECT_EQ(recorded.error().code(), "bad-replay");
  }
}

TEST(RunRecords, AnOpenAttemptIsResumedAndClosedOnesCount) {
  const SmallRun run;
  std::vector<store::RoundRecord> rounds(3);
  rounds[0] = {.key = {RunId(1), 1, 1}, .state = store::RoundState::kCommitted};
  rounds[1] = {.key = {RunId(1), 2, 1}, .state = store::RoundState::kAbandoned};
  rounds[2] = {
      .key = {RunId(1), 2, 2}, .state = store::RoundState::kOpen, .cohort = {{"a", TaskId(5)}}};
  const RunStart start = run.start_after(1, rounds);
  EXPECT_EQ(start.attempts.at(2).last, 1U);
  EXPECT_EQ(start.attempts.at(2).failed, 1);
  ASSERT_TRUE(start.open);
  EXPECT_EQ(start.open->attempt, 2U);
  EXPECT_EQ(start.open->participants, (std::vector<Participant>{{"a", TaskId(5)}}));
}

TEST(RunRecords, AnEvaluationThatWasAbandonedIsNotTriedAgainAndOneThatWasWithdrawnIs) {
  const SmallRun small;
  store::RoundRecord evaluation{.key = {RunId(1), 3, 1, store::PhaseKind::kEvaluate},
                                .state = store::RoundState::kAbandoned,
                                .abandonment = store::Abandonment{"too-few-updates", "none came"}};
  const auto start = [&](Round last) {
    return to_run_start(RunId(1), small.context, {{RunId(1), last, {}}, small.model, {}, {}}, {},
                        std::nullopt, {evaluation});
  };
  EXPECT_TRUE(start(3).evaluated);
  store::RoundRecord next{.key = {RunId(1), 4, 1}, .state = store::RoundState::kOpen};
  EXPECT_TRUE(to_run_start(RunId(1), small.context, {{RunId(1), 3, {}}, small.model, {}, {}},
                           {next}, next, {})
                  .evaluated)
      << "no client could evaluate, and the next training has begun";
  EXPECT_FALSE(start(2).evaluated) << "it is the next round's, whose model was withdrawn";
  EXPECT_EQ(start(2).evaluations.at(3), 1U) << "so that its next evaluation is attempt 2";
}

TEST(RunRecords, ARestartKnowsWhoFailedToEvaluateAndWhatWasMeasured) {
  SmallRun small;
  small.context.job.stop = {.metric = "federated-loss", .patience = 1};
  std::vector<store::RoundRecord> rounds, evaluations;
  for (const Round round : {1, 2}) {
    rounds.push_back({.key = {RunId(1), round, 1}, .state = store::RoundState::kCommitted});
    rounds.back().result.failures = {{"slow", "deadline", "no update came"}};
    evaluations.push_back({.key = {RunId(1), round, 1, store::PhaseKind::kEvaluate},
                           .state = store::RoundState::kCommitted});
    evaluations.back().result = {
        .contributions = {{"good", TaskId(round), 1}},
        .failures = {{"late", "round-closed", "not needed"},
                     {"silent", "deadline", fmt::format("no evaluation came, {}", round)},
                     {"stopped", "run-stopped", "the run was stopped"}},
        .evaluation = {0.25 * round, 0.5}};
  }
  evaluations[0].result.contributions.push_back({"once", TaskId(9), 1});
  evaluations[1].result.failures.push_back({"once", "no-data", "it has no rows"});
  const RunStart start = to_run_start(RunId(1), small.context, {{RunId(1), 2, {}}, small.model},
                                      rounds, std::nullopt, evaluations);
  const auto* silent = start.evaluation_failures.find_left_out("silent", 2);
  ASSERT_NE(silent, nullptr);
  EXPECT_EQ(silent->reason, "no evaluation came, 2");
  EXPECT_TRUE(start.evaluation_failures.left_out("silent", 10));
  EXPECT_FALSE(start.evaluation_failures.left_out("silent", 11)) << "it has another chance";
  for (const char* client : {"good", "late", "stopped", "once", "slow"}) {
    EXPECT_FALSE(start.evaluation_failures.left_out(client, 2)) << client;
  }
  EXPECT_FALSE(start.failures.left_out("silent")) << "it may train";
  EXPECT_TRUE(start.stopping.reason()) << "the loss rose";
  EXPECT_FALSE(start.stopping.unmeasured());
  EXPECT_TRUE(small.start_after(2, rounds).stopping.unmeasured());
}

TEST(RunRecords, AttemptsThatWereWithdrawnKeepTheirNumbersAndHaveNotFailed) {
  const SmallRun run;
  const auto abandoned = [](Round round, Attempt attempt, std::string code) {
    return store::RoundRecord{.key = {RunId(1), round, attempt},
                              .state = store::RoundState::kAbandoned,
                              .abandonment = store::Abandonment{std::move(code), "x"}};
  };
  const RunStart start =
      run.start_after(0, {abandoned(1, 1, "too-few-updates"), abandoned(1, 2, "model-damaged"),
                          abandoned(2, 1, "base-withdrawn")});
  EXPECT_EQ(start.attempts.at(1).last, 2U);
  EXPECT_EQ(start.attempts.at(1).failed, 1);
  EXPECT_EQ(start.attempts.at(2).last, 1U);
  EXPECT_EQ(start.attempts.at(2).failed, 0);
}

// What `client` is told of `task`: "committed ROUND", the code of the end, or nothing yet.
std::string told(store::Store& store, std::uint64_t task, const std::string& client) {
  const auto settlement = settle_task(store, TaskId(task), client).value();
  if (!settlement) return "nothing";
  if (const auto* ended = std::get_if<protocol::TaskEnded>(&*settlement)) return ended->code;
  return "committed " + std::to_string(std::get<protocol::RoundCommitted>(*settlement).round);
}

TEST(RunRecords, AnOldTaskIsSettledWithoutReadingTheRoundsAfterIt) {
  testing::FlakyStore store;
  const auto digest = [](Round round) { return sha256(as_bytes(std::to_string(round))); };
  const RunId run = store.submit_run({.name = "r"}, {}).value();
  ASSERT_TRUE(store.start_run(run, {.sha256 = digest(0)}, "", {}));
  for (Round round = 1; round <= 50; ++round) {
    ASSERT_TRUE(store.open_attempt({{run, round, 1},
                                    {{"a", TaskId(2 * round)}, {"b", TaskId(2 * round + 1)}},
                                    digest(round - 1),
                                    {}}));
    store::AttemptResult result;
    result.contributions = {{"a", TaskId(2 * round), 1}};
    ASSERT_TRUE(
        store.commit_attempt({run, round, 1}, result, {.round = round, .sha256 = digest(round)}));
  }
  ASSERT_TRUE(store.open_attempt({{run, 51, 1}, {{"a", TaskId(200)}}, digest(50), {}}));
  EXPECT_EQ(told(store, 200, "a"), "nothing") << "the run may wait for its turn after a restart";
  ASSERT_TRUE(store.abandon_attempt({run, 51, 1}, {}, {"too-few-updates", "x"}));
  EXPECT_EQ(told(store, 2, "a"), "committed 1");
  EXPECT_EQ(told(store, 3, "b"), "round-closed");
  EXPECT_EQ(told(store, 100, "a"), "committed 50");
  EXPECT_EQ(told(store, 2, "b"), "unknown-task") << "it is another client's";
  EXPECT_EQ(told(store, 7777, "a"), "unknown-task");
  EXPECT_EQ(told(store, 200, "a"), "nothing") << "good for the next attempt";
  ASSERT_TRUE(store.finish_run(run, {.state = store::RunState::kStopped}, {}));
  EXPECT_EQ(told(store, 200, "a"), "round-closed");
  EXPECT_EQ(store.rounds_read, 0U);
}

TEST(RunRecords, ATaskOfAnEvaluationIsSettledWhenItCannotCountAnyMore) {
  testing::FlakyStore store;
  const auto digest = [](Round round) { return sha256(as_bytes(std::to_string(round))); };
  const RunId run = store.submit_run({.name = "r"}, {}).value();
  ASSERT_TRUE(store.start_run(run, {.sha256 = digest(0)}, "", {}));
  const auto train = [&](Round round) {
    ASSERT_TRUE(store.open_attempt({{run, round, 1}, {}, digest(round - 1), {}}));
    ASSERT_TRUE(
        store.commit_attempt({run, round, 1}, {}, {.round = round, .sha256 = digest(round)}));
  };
  const auto key = [&](Round round, Attempt attempt) {
    return store::AttemptKey{run, round, attempt, store::PhaseKind::kEvaluate};
  };
  train(1);
  ASSERT_TRUE(store.open_attempt(
      {key(1, 1), {{"a", TaskId(1)}, {"b", TaskId(2)}, {"c", TaskId(3)}}, digest(1), {}}));
  EXPECT_EQ(told(store, 1, "a"), "nothing") << "its round is committed, but not its evaluation";
  ASSERT_TRUE(store.abandon_attempt(key(1, 1), {}, {"too-few-clients", "x"}));
  EXPECT_EQ(told(store, 1, "a"), "nothing") << "good for the next attempt";
  ASSERT_TRUE(store.open_attempt({key(1, 2), {{"b", TaskId(4)}}, digest(1), {}}));
  store::AttemptResult result;
  result.contributions = {{"a", TaskId(1), 100}};
  ASSERT_TRUE(store.commit_evaluation(key(1, 2), result));
  EXPECT_EQ(told(store, 1, "a"), "committed 1");
  EXPECT_EQ(told(store, 2, "b"), "round-closed");
  EXPECT_EQ(told(store, 4, "b"), "round-closed");
  train(2);
  ASSERT_TRUE(store.open_attempt({key(2, 1), {{"a", TaskId(5)}}, digest(2), {}}));
  ASSERT_TRUE(store.abandon_attempt(key(2, 1), {}, {"too-few-clients", "x"}));
  EXPECT_EQ(told(store, 5, "a"), "nothing");
  ASSERT_TRUE(store.open_attempt({{run, 3, 1}, {{"a", TaskId(6)}}, digest(2), {}}));
  EXPECT_EQ(told(store, 5, "a"), "round-closed") << "the run has gone on";
}

std::shared_ptr<const data::Dataset> labelled(std::vector<std::string> names) {
  data::Dataset::Content content{.name = "rows", .shape = {1, 1, 2}, .classes = 2};
  content.features = {0, 1, 2, 3};
  content.labels = {0, 1};
  content.class_names = std::move(names);
  content.class_column = "label";
  return data::Dataset::make(std::move(content)).value();
}

TEST(RunRecords, ClassesThatAreTextsAreThoseOfTheEvaluationData) {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "rows.csv";
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,cat\n2,3,dog\n")));
  Job job;
  job.evaluate.dataset = "csv:" + file.string();
  const auto run = prepare_run(job, nullptr);
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_THAT(run->settings(), ::testing::IsSupersetOf(Settings{{"data.columns", "x,y"},
                                                                {"data.class-names", "cat,dog"},
                                                                {"data.input", "2"},
                                                                {"data.classes", "2"}}));
  EXPECT_THAT(run->abilities(), ::testing::Contains(client::kNamesAbility))
      << "an earlier version has others";
  EXPECT_TRUE(prepare_run(job, labelled({"cat", "dog"})));
  EXPECT_EQ(prepare_run(job, labelled({"dog", "fox"})).error().code(), "unknown-class");
  EXPECT_EQ(prepare_run(job, labelled({})).error().code(), "unknown-class")
      << "numbers need not mean the same as the texts";
  job.training.data.class_names = {"fox", "dog", "cat"};
  job.training.data.columns = {"y", "x"};
  const auto said = prepare_run(job, labelled({"dog", "fox"}));
  ASSERT_TRUE(said) << said.error().message();
  EXPECT_EQ(said->evaluation->label(0), 2);
  EXPECT_THAT(said->evaluation->features(0), ::testing::ElementsAre(1.0F, 0.0F));
  EXPECT_EQ(said->model->classes(), 3);
  job.training.data.columns = {"y", "z"};
  EXPECT_EQ(prepare_run(job, nullptr).error().code(), "columns-differ");
}

TEST(RunRecords, EvaluationDataMayLackClassesOfTheRowsOfASimulation) {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "rows.csv";
  Job job;
  job.evaluate.dataset = "csv:" + file.string();
  const auto three = [](std::vector<std::string> names) {
    data::Dataset::Content content{.name = "rows", .shape = {1, 1, 2}, .classes = 3};
    content.features = {0, 1, 2, 3, 4, 5};
    content.labels = {0, 1, 2};
    content.class_names = std::move(names);
    content.class_column = "label";
    return data::Dataset::make(std::move(content)).value();
  };
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,cat\n2,3,fox\n")));
  const auto run = prepare_run(job, three({"cat", "dog", "fox"}));
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->model->classes(), 3);
  EXPECT_EQ(run->evaluation->label(1), 2) << "by its name";
  EXPECT_THAT(prepare_run(job, three({"cat", "cow", "dog"})).error().message(),
              HasSubstr("the label 'fox' of csv:" + file.string() + " is no class of the job"));
  job.data.match = kMatchPosition;
  EXPECT_FALSE(prepare_run(job, three({"cat", "dog", "fox"}))) << "their numbers differ";
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,0\n2,3,1\n")));
  EXPECT_EQ(prepare_run(job, three({}))->model->classes(), 3);
  job.training.data.classes = 2;
  EXPECT_EQ(prepare_run(job, three({})).error().code(), "data-mismatch") << "the job says two";
}

TEST(RunRecords, NamesThatContradictTheShapeOrEachOtherAreRefused) {
  const auto why = [](const std::string& data) {
    const auto job = parse_job("data = {" + data + "}", "job.toml");
    if (!job) return job.error().message();
    const auto run = prepare_run(*job, nullptr);
    return run ? std::string("accepted") : run.error().message();
  };
  EXPECT_EQ(why(R"(columns = ["x", "y"], class-names = ["cat", "dog"])"), "accepted");
  EXPECT_THAT(why(R"(input = [3], classes = 2, columns = ["x", "y"])"), HasSubstr("not [2]"));
  EXPECT_THAT(why(R"(input = [2], classes = 3, class-names = ["cat", "dog"])"),
              HasSubstr("data.class-names has 2 names, and data.classes = 3"));
  EXPECT_THAT(why(R"(classes = 2, columns = ["x", "x"])"), HasSubstr("data.columns has 'x' twice"));
  EXPECT_THAT(why(R"(input = [2], class-names = ["7", "x"])"), HasSubstr("has the number 7"));
  EXPECT_THAT(why(R"(classes = 2, columns = ["x", "y"], match = "position")"),
              HasSubstr("data.match"));
  EXPECT_THAT(
      why("classes = 2, columns = [\"" + std::string(client::kNamesBytesMax + 1, 'x') + "\"]"),
      HasSubstr("no message can carry"));
  Job job;
  job.training.data = {{2}, 2, {"x", "y"}};
  job.fallback.topology = "ring";
  EXPECT_THAT(job.validate().error().message(), HasSubstr("fallback.topology"));
}

TEST(RunRecords, ColumnsCountByPositionWhereTheJobSaysSoOrAnEarlierVersionBeganTheRun) {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "rows.csv";
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,0\n2,3,1\n")));
  Job job;
  job.evaluate.dataset = "csv:" + file.string();
  EXPECT_EQ(prepare_run(job, nullptr)->for_clients.data.columns.size(), 2U);
  job.data.match = kMatchPosition;
  Job alone;
  alone.data.match = kMatchPosition;
  EXPECT_THAT(prepare_run(alone, labelled({"cat", "dog"})).error().message(),
              HasSubstr("the job does not say which class each one is"));
  EXPECT_TRUE(prepare_run(job, nullptr)->for_clients.data.columns.empty());
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("{}-{},", std::string(54, 'x'), i);
  text += "label\n";
  for (int i = 0; i < 300; ++i) text += "0,";
  ASSERT_TRUE(write_durably(file, as_bytes(text + "1\n")));
  EXPECT_TRUE(prepare_run(job, nullptr));
  job.data.match = kMatchNames;
  EXPECT_EQ(prepare_run(job, nullptr).error().code(), "names-too-long") << "never in silence";
}

TEST(RunRecords, WhereClientsTrainOnByGossipNothingIsMatchedByName) {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "rows.csv";
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,0\n2,3,1\n")));
  Job job;
  job.evaluate.dataset = "csv:" + file.string();
  job.fallback.topology = "ring";
  EXPECT_TRUE(prepare_run(job, nullptr)->for_clients.data.columns.empty());
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,cat\n2,3,dog\n")));
  EXPECT_EQ(prepare_run(job, nullptr).error().code(), "text-labels");
}

TEST(RunRecords, AShapeThatTheDataDoesNotHaveIsRefused) {
  Job job;
  job.training.data = {{1, 1, 2}, 2};
  EXPECT_TRUE(prepare_run(job, labelled({})));
  job.training.data = {{1, 2, 1}, 2};
  EXPECT_EQ(prepare_run(job, labelled({})).error().code(), "data-mismatch");
}

TEST(RunRecords, AJobWithoutAnyShapeIsRefused) {
  EXPECT_EQ(prepare_run(Job{}, nullptr).error().code(), "no-data-shape");
}

}  // namespace
}  // namespace starling::coordinator

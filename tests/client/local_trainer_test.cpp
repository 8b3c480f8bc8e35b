// SPDX-License-Identifier: Apache-2.0
#include "core/client/local_trainer.h"

#include <gtest/gtest.h>

#include "core/data/load.h"

namespace starling::client {
namespace {

class LocalTrainerTest : public ::testing::Test {
 protected:
  LocalTrainerTest() {
    const auto spec = data::DatasetSpec::parse("synthetic:rows=200,features=5,classes=3").value();
    view.dataset = data::load_dataset(spec).value();
    settings.model.kind = "softmax-regression";
    settings.data = DataShape::of(view.dataset->shape(), view.dataset->classes());
    settings.train.local_epochs = 2;
    const auto model = settings.make_model().value();
    parameters = std::make_shared<model::Parameters>(model::initial_parameters(*model, 1));
    plan.task = TaskId(1);
    plan.seed = 1;
    plan.round = 1;
    plan.rounds = 5;
    plan.settings = settings.to_settings();
    plan.base = {RunId(1), 0, parameters->sha256()};
    plan.model_bytes = parameters->size() * sizeof(float);
    plan.schema.vectors = {{.name = "model", .elements = parameters->size()}};
  }

  SharedBytes base() const { return {parameters, as_bytes(parameters->values())}; }
  Result<PendingUpdate> make(const std::string& name, TrainerCache& cache) {
    BuiltinTrainer trainer(name, {view, held_out}, cache);
    return make_update({.plan = plan, .base = base()}, trainer, {}, stop);
  }

  data::DatasetView view;
  std::optional<data::DatasetView> held_out;
  TrainingSettings settings;
  std::shared_ptr<model::Parameters> parameters;
  protocol::RoundPlan plan;
  std::atomic<bool> stop = false;
};

TEST_F(LocalTrainerTest, TheUpdateIsTheDifferenceThatTrainingMade) {
  TrainerCache cache;
  const auto update = make("a", cache);
  ASSERT_TRUE(update) << update.error().message();
  const auto contribution = update::validate(update->head, update->payload, plan.schema);
  ASSERT_TRUE(contribution);
  EXPECT_EQ(contribution->weight(), 200);
  EXPECT_GT(update->head.scalars.at("train_loss"), 0);

  train::LocalTrainer trainer(settings.make_model().value(), settings.train);
  std::vector<float> trained(parameters->values().begin(), parameters->values().end());
  const Rng rng({.seed = 1, .purpose = Purpose::kBatches, .node = hash_name("a"), .round = 1});
  ASSERT_TRUE(trainer.train(trained, view, 1, 5, rng, stop));
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(contribution->vector(0)[i], trained[i] - parameters->values()[i]);
  }
}

// The same rows whatever the order of the columns and the numbers of the classes in a file.
TEST_F(LocalTrainerTest, RowsAreMatchedByTheNamesThatTheRunSays) {
  const auto rows = [&](std::vector<std::size_t> order, std::vector<std::string> columns,
                        std::vector<std::string> classes) {
    data::Dataset::Content content{.name = "csv:rows.csv", .shape = {1, 1, 2}, .classes = 2};
    for (std::size_t i = 0; i < 40; ++i) {
      const std::array<float, 2> row = {static_cast<float>(i % 7), static_cast<float>(i % 3)};
      for (const std::size_t column : order) content.features.push_back(row[column]);
      content.labels.push_back(classes[0] == "robin" ? i % 2 == 0 : i % 2);
    }
    content.feature_names = std::move(columns);
    content.class_names = std::move(classes);
    return data::DatasetView{data::Dataset::make(std::move(content)).value()};
  };
  settings.data = {{2}, 3, {"x", "y"}, {"finch", "robin", "wren"}};
  parameters = std::make_shared<model::Parameters>(
      model::initial_parameters(*settings.make_model().value(), 1));
  plan.settings = settings.to_settings();
  plan.base.sha256 = parameters->sha256();
  plan.schema.vectors[0].elements = parameters->size();
  TrainerCache cache;
  view = rows({0, 1}, {"x", "y"}, {"finch", "robin"});
  const auto first = make("a", cache);
  ASSERT_TRUE(first) << first.error().message();
  view = rows({1, 0}, {"y", "x"}, {"robin", "finch"});
  const auto second = make("a", cache);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(first->head.payload_checksum, second->head.payload_checksum);
  view = rows({1, 0}, {"z", "x"}, {"robin", "finch"});
  EXPECT_EQ(make("a", cache).error().code(), "columns-differ");
}

// The same update as of rows that were scaled by hand, whatever the order of the columns in a file.
TEST_F(LocalTrainerTest, RowsAreScaledByTheNumbersThatTheRunSays) {
  const auto rows = [](std::vector<std::string> columns, bool by_hand) {
    data::Dataset::Content content{.name = "csv:rows.csv", .shape = {1, 1, 2}, .classes = 2};
    for (std::size_t i = 0; i < 40; ++i) {
      const auto x = static_cast<float>(i % 7);
      const auto y = static_cast<float>(10000 * (i % 3));
      for (const std::string& column : columns) {
        const float value = column == "x" ? x : y;
        const float scaled = column == "x" ? (x - 3) / 2 : (y - 10000) / 8000;
        content.features.push_back(by_hand ? scaled : value);
      }
      content.labels.push_back(i % 2);
    }
    content.feature_names = std::move(columns);
    return data::DatasetView{data::Dataset::make(std::move(content)).value()};
  };
  settings.data = {{2}, 2, {"x", "y"}};
  parameters = std::make_shared<model::Parameters>(
      model::initial_parameters(*settings.make_model().value(), 1));
  plan.settings = settings.to_settings();
  plan.base.sha256 = parameters->sha256();
  plan.schema.vectors[0].elements = parameters->size();
  TrainerCache cache;
  view = rows({"x", "y"}, true);
  const auto expected = make("a", cache).value().head.payload_checksum;
  settings.data.scale = "standard";
  settings.data.scale_offsets = {3, 10000};
  settings.data.scale_divisors = {2, 8000};
  plan.settings = settings.to_settings();
  view = rows({"x", "y"}, false);
  EXPECT_EQ(make("a", cache).value().head.payload_checksum, expected);
  view = rows({"y", "x"}, false);
  EXPECT_EQ(make("a", cache).value().head.payload_checksum, expected);
  view = data::DatasetView{
      data::Dataset::make(
          {.name = "idx", .shape = {1, 1, 2}, .classes = 2, .features = {0, 1}, .labels = {0}})
          .value()};
  EXPECT_EQ(make("a", cache).error().code(), "scale-not-csv");
  std::erase_if(plan.settings, [](const auto& s) { return s.first == "data.scale-offsets"; });
  EXPECT_EQ(make("a", cache).error().code(), "setting-invalid") << "a list is missing";
  std::erase_if(plan.settings, [](const auto& s) { return s.first == "data.scale-divisors"; });
  EXPECT_EQ(make("a", cache).error().message(), "data.scale = 'standard' comes without its numbers")
      << "never those of the rows of one device";
}

TEST(RunData, HoldsTheRowsOfOneOtherRun) {
  const auto dataset = data::Dataset::make({.name = "csv:rows.csv",
                                            .shape = {1, 1, 2},
                                            .classes = 1,
                                            .features = {1, 2},
                                            .labels = {0},
                                            .feature_names = {"x", "y"}})
                           .value();
  RunData data({{dataset}, data::DatasetView{dataset}});
  EXPECT_EQ(data.named({})->training.dataset, dataset);
  const auto other = data.named({{"y", "x"}, {}});
  EXPECT_EQ(other->training.dataset->row(0)[0], 2);
  EXPECT_EQ(other->held_out->dataset, other->training.dataset);
  EXPECT_EQ(data.named({{"y", "x"}, {}})->training.dataset, other->training.dataset);
  EXPECT_EQ(data.named({{"x", "y"}, {}})->training.dataset, dataset);
  EXPECT_EQ(data.named({{"x", "z"}, {}}).error().code(), "columns-differ");
  const data::RowNames scaled{{"x", "y"}, {}, {{1, 0}, {1, 4}}};
  EXPECT_EQ(data.named(scaled)->training.dataset->row(0)[1], 0.5F);
  EXPECT_EQ(data.named({{"x", "y"}, {}, {{0, 0}, {1, 8}}})->training.dataset->row(0)[1], 0.25F)
      << "of another run, from the rows themselves";
  EXPECT_EQ(data.named({{"x", "y"}, {}})->training.dataset, dataset);
}

// The third feature is zero in all rows, so nothing changes its weights.
TEST_F(LocalTrainerTest, AnUpdateThatIsAskedForSparseLeavesOutWhatDidNotChange) {
  auto content = data::Dataset::Content{.name = "two of five features",
                                        .shape = view.dataset->shape(),
                                        .classes = view.dataset->classes()};
  content.features.assign(view.dataset->features().begin(), view.dataset->features().end());
  content.labels.assign(view.dataset->labels().begin(), view.dataset->labels().end());
  for (std::size_t i = 0; i < content.features.size(); ++i) {
    if (i % 5 != 1 && i % 5 != 3) content.features[i] = 0;
  }
  view.dataset = data::Dataset::make(std::move(content)).value();
  TrainerCache cache;
  const PendingUpdate dense = make("a", cache).value();
  EXPECT_EQ(dense.head.vectors, plan.schema.vectors);
  plan.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  const PendingUpdate sparse = make("a", cache).value();
  EXPECT_EQ(sparse.head.vectors[0].encoding, update::Encoding::kSparseFloat32Delta);
  EXPECT_EQ(sparse.payload.size(), 8U + 4 * (2 * 3 + 3)) << "two features and the bias, 3 classes";
  const auto from_dense = update::validate(dense.head, dense.payload, plan.schema);
  const auto from_sparse = update::validate(sparse.head, sparse.payload, plan.schema);
  ASSERT_TRUE(from_dense && from_sparse);
  std::vector<float> values(parameters->size());
  ASSERT_TRUE(from_sparse->read(0, 0, values));
  EXPECT_EQ(to_bytes(as_bytes(values)), to_bytes(dense.payload.view()));
  EXPECT_EQ(from_sparse->norm(), from_dense->norm());
}

TEST_F(LocalTrainerTest, DependsOnNameAndRoundButNotOnTheAttemptOrWhatWasTrainedBefore) {
  TrainerCache used;
  TrainerCache fresh;
  const auto first = make("a", used).value().head.payload_checksum;
  EXPECT_NE(make("b", used).value().head.payload_checksum, first);
  plan.attempt = 7;
  EXPECT_EQ(make("a", used).value().head.payload_checksum, first);
  EXPECT_EQ(make("a", fresh).value().head.payload_checksum, first);
  plan.round = 2;
  EXPECT_NE(make("a", used).value().head.payload_checksum, first);
}

TEST_F(LocalTrainerTest, WhatItsStrategyNeedsMustFitTheMemory) {
  const std::uint64_t model = parameters->size() * sizeof(float);
  const auto code = [&](std::uint64_t models, std::uint64_t other_states = 0) {
    TrainerCache cache;
    BuiltinTrainer trainer("a", {view, held_out}, cache);
    const UpdateOptions options{.memory_bytes_max = models * model, .pending_updates = 3};
    Train task{.plan = plan, .base = base(), .other_states_bytes = other_states * model};
    for (const auto& input : plan.inputs)
      task.inputs.push_back({nullptr, base().slice(0, input.bytes).view()});
    const auto made = make_update(task, trainer, options, stop);
    return made ? std::string() : made.error().code();
  };
  EXPECT_EQ(code(8), "") << "five while it is trained, three updates";
  EXPECT_EQ(code(7), "model-too-large");
  settings.strategy.name = "scaffold";
  plan.settings = settings.to_settings();
  plan.schema.vectors.push_back({.name = "control", .elements = parameters->size()});
  plan.inputs = {{"control", plan.base.sha256, model}};
  EXPECT_EQ(code(15), "") << "an input and three states more, and two with each update";
  EXPECT_EQ(code(14), "model-too-large");
  EXPECT_EQ(code(17, 2), "") << "what is held for other runs";
  EXPECT_EQ(code(16, 2), "memory-in-use");
  EXPECT_EQ(code(14, 2), "model-too-large") << "also when they are gone";
}

TEST_F(LocalTrainerTest, ALostStateFailsOneTaskOfAStrategyThatKeepsOne) {
  const auto code = [&](bool lost) {
    TrainerCache cache;
    BuiltinTrainer trainer("a", {view, held_out}, cache);
    Train task{.plan = plan, .base = base(), .state_lost = lost};
    for (const auto& input : plan.inputs)
      task.inputs.push_back({nullptr, base().slice(0, input.bytes).view()});
    const auto made = make_update(task, trainer, {}, stop);
    return made ? std::string() : made.error().code();
  };
  EXPECT_EQ(code(true), "") << "fedavg keeps nothing";
  settings.strategy.name = "scaffold";
  plan.settings = settings.to_settings();
  plan.schema.vectors.push_back({.name = "control", .elements = parameters->size()});
  plan.inputs = {{"control", plan.base.sha256, parameters->size() * sizeof(float)}};
  EXPECT_EQ(code(true), "state-lost");
  EXPECT_EQ(code(false), "");
}

TEST_F(LocalTrainerTest, EvaluatesOnWhatItHoldsOut) {
  TrainerCache cache;
  plan.kind = protocol::TaskKind::kEvaluate;
  plan.schema = {.scalars = {"loss", "accuracy"}};
  EXPECT_EQ(make("a", cache).error().code(), "unsupported-operation");
  const std::vector<std::uint32_t> rows = {3, 14, 15, 92, 65};
  held_out =
      data::DatasetView{view.dataset, std::make_shared<const std::vector<std::uint32_t>>(rows)};
  const auto update = make("a", cache);
  ASSERT_TRUE(update) << update.error().message();
  EXPECT_TRUE(update->payload.empty());
  EXPECT_EQ(update->head.weight, 5);
  EXPECT_TRUE(update::validate(update->head, update->payload, plan.schema));
  const auto model = settings.make_model().value();
  const auto expected = train::evaluate(*model, parameters->values(), *held_out).value();
  EXPECT_EQ(update->head.scalars.at("loss"), expected.loss);
  EXPECT_EQ(update->head.scalars.at("accuracy"), expected.accuracy);
  stop = true;
  EXPECT_EQ(make("a", cache).error().code(), "stopped");
}

class Regression final : public Trainer {
  Result<TrainingReport> train(const TrainingRequest&, std::span<float>,
                               const train::TrainingHooks<float>&,
                               const std::atomic<bool>&) override {
    return TrainingReport{
        .weight = 5, .train_loss = 3, .steps = 1, .metrics = {{"accuracy", 0.5}, {"mae", 0.75}}};
  }
  Result<train::Evaluation> evaluate(const TrainingRequest&, std::span<const float>,
                                     const std::atomic<bool>&) override {
    return train::Evaluation{.loss = -2, .samples = 7, .metrics = {{"mae", 0.25}}};
  }
};

TEST_F(LocalTrainerTest, AnEvaluationTravelsAsItsNumbersHaveNames) {
  plan.kind = protocol::TaskKind::kEvaluate;
  plan.schema = {.scalars = {"loss"}, .bounds = plan.schema.bounds};
  Regression trainer;
  const auto update = make_update({.plan = plan, .base = base()}, trainer, {}, stop);
  ASSERT_TRUE(update) << update.error().message();
  EXPECT_EQ(update->head.weight, 7);
  EXPECT_EQ(update->head.scalars,
            (std::map<std::string, double>{{"loss", -2}, {"metrics.mae", 0.25}}));
  EXPECT_TRUE(update::validate(update->head, update->payload, plan.schema));
}

TEST_F(LocalTrainerTest, MetricsOfATrainingTravelBesideItsLoss) {
  Regression trainer;
  const auto update = make_update({.plan = plan, .base = base()}, trainer, {}, stop);
  ASSERT_TRUE(update) << update.error().message();
  EXPECT_EQ(update->head.scalars,
            (std::map<std::string, double>{
                {"train_loss", 3}, {"metrics.accuracy", 0.5}, {"metrics.mae", 0.75}}));
  EXPECT_TRUE(update::validate(update->head, update->payload, plan.schema));
}

TEST_F(LocalTrainerTest, OnlySettingsThatDifferFromTheirDefaultsTravel) {
  TrainingSettings plain;
  EXPECT_EQ(plain.to_settings(), Settings());
  plain.train.learning_rate = 0.5;
  plain.strategy.mu = 0.25;
  const Settings expected = {{"train.learning-rate", "0.5"}, {"strategy.mu", "0.25"}};
  EXPECT_EQ(plain.to_settings(), expected);
  const auto parsed = TrainingSettings::parse(expected).value();
  EXPECT_EQ(parsed.train, plain.train);
  EXPECT_EQ(parsed.strategy, plain.strategy);
}

TEST_F(LocalTrainerTest, NamesWhatItCannotDo) {
  TrainerCache cache;
  const auto code = [&] {
    const auto made = make("a", cache);
    return made ? std::string("made") : made.error().code();
  };
  EXPECT_EQ(code(), "made");
  plan.settings.emplace_back("train.novelty", "1");
  EXPECT_EQ(code(), "unknown-setting");
  plan.settings.back() = {"strategies.name", "fedavg"};
  EXPECT_EQ(code(), "unknown-setting");
  plan.settings.back() = {"train.batch-size", "-3"};
  EXPECT_NE(code(), "made");
  plan.settings = settings.to_settings();
  settings.strategy.name = "fedmagic";
  plan.settings = settings.to_settings();
  EXPECT_NE(code(), "made");
  settings.strategy.name = "fedavg";
  settings.data.classes = 4;  // another size than the model that arrived
  plan.settings = settings.to_settings();
  EXPECT_EQ(code(), "wrong-vectors");
  settings.data.classes = 3;
  plan.settings = settings.to_settings();
  plan.base.sha256 = sha256(as_bytes("another"));
  EXPECT_EQ(code(), "model-damaged");
  plan.base.sha256 = parameters->sha256();
  stop = true;
  EXPECT_EQ(code(), "stopped");
}

}  // namespace
}  // namespace starling::client

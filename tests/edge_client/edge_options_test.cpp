// SPDX-License-Identifier: Apache-2.0
#include "edge_client/edge_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "core/base/durable_file.h"
#include "core/client/given_model.h"
#include "core/config/binder.h"
#include "core/model/external_model.h"
#include "edge_client/client_data.h"
#include "tests/support/paths.h"

namespace starling::edge_client {
namespace {

using ::testing::HasSubstr;

TEST(EdgeOptions, TheReadmeHasEveryKey) {
  EdgeOptions options;
  config::Binder binder;
  bind(binder, options);
  const auto readme = read_text_file(testing::source_root() / "edge_client/README.md", 1 << 20);
  ASSERT_TRUE(readme);
  const auto checked = config::check_documentation(binder.documents(), "edge.toml", *readme);
  EXPECT_TRUE(checked) << checked.error().message();
}

Result<void> read(EdgeOptions& options, const std::string& toml) {
  config::Binder binder;
  bind(binder, options);
  return binder.read_toml(toml, "edge.toml");
}

TEST(EdgeOptions, TheTemplateSaysNothingUntilItIsUncommented) {
  EdgeOptions options;
  const std::string text = edge_toml_template();
  ASSERT_TRUE(read(options, text + "[data]\ndataset = \"csv:rows.csv\"\n"));
  EXPECT_EQ(options.data.dataset, "csv:rows.csv");
  EXPECT_EQ(options.data.partition, "");
}

TEST(EdgeOptions, TheTemplatesLinesAreWhatTheBinderTakes) {
  EdgeOptions options;
  const std::string uncommented =
      std::regex_replace(edge_toml_template(), std::regex("(^|\n)# (\\[|[a-z-]+ = )"), "$1$2");
  const auto taken = read(options, uncommented);
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_EQ(options.data.partition, "dirichlet:alpha=0.5,index=3,of=10");
  EXPECT_EQ(options.connection.backoff_max, std::chrono::seconds(30));
  EXPECT_EQ(options.log.threshold(), LogLevel::kInfo);
  EXPECT_EQ(options.trainer.command, (std::vector<std::string>{"python3", "train.py"}));
  options.trainer.command.clear();  // as there is data
  EXPECT_TRUE(validate(options));
}

TEST(EdgeOptions, AMistypedKeyIsNamedWithTheOneMeant) {
  EdgeOptions options;
  const auto taken = read(options, "[connection]\nbackof-max = \"5s\"\n");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), "unknown-key");
  EXPECT_THAT(taken.error().message(), HasSubstr("connection.backoff-max"));
}

TEST(ClientOptions, SayHowManyRowsAreHeldOut) {
  const auto announced = [](double hold_out) {
    EdgeOptions options;
    options.data.dataset = "synthetic:rows=40,features=6,classes=3";
    options.data.hold_out = hold_out;
    const client::ClientData data = load_client_data(options).value();
    const DeviceTraining training = train_on_data("cam-7", data, 1);
    const client::ClientOptions client = client_options(options, training, 0, "1").value();
    EXPECT_EQ(client.input, std::vector<std::uint32_t>{6});
    EXPECT_EQ(client.classes, 3U);
    return std::pair(client.rows, client.held_out);
  };
  EXPECT_EQ(announced(0.25), std::pair(30UL, 10UL));
  EXPECT_EQ(announced(0), std::pair(40UL, 0UL));
}

TEST(ClientOptions, OfATrainerOfOnesOwnAreWhatItSaysOfItself) {
  EdgeOptions options;
  options.trainer.command = {"python3", "train.py"};
  EXPECT_TRUE(validate(options));
  EXPECT_EQ(load_client_data(options)->training.size(), 0U);
  client::TrainerDescription description{
      .name = "train.py",
      .operations = {client::TrainerOperation::kFit, client::TrainerOperation::kEvaluate},
      .rows = 60,
      .held_out = 6,
      .layout = model::external_layout({{.name = "a", .shape = {3}}}).value()};
  client::GivenModel trainer({}, {});
  const auto client = [&] {
    return client_options(options, train_by_application(trainer, description), 0, "1").value();
  };
  EXPECT_EQ(client().rows, 0U) << "a run's settings may change them";
  EXPECT_EQ(client().abilities,
            (std::vector<std::string>{"evaluate", "model-external", "sparse-float32"}));
  description.operations.push_back(client::TrainerOperation::kGradient);
  EXPECT_THAT(client().abilities,
              ::testing::IsSupersetOf({"scaffold", "fedprox", "model-external"}));
}

TEST(EdgeOptions, DataAndATrainerThatHoldsItsOwnExcludeEachOther) {
  EdgeOptions options;
  options.trainer.command = {"train"};
  options.data.dataset = "csv:rows.csv";
  const auto valid = validate(options);
  ASSERT_FALSE(valid);
  EXPECT_THAT(valid.error().message(), HasSubstr("trainer.command and data.dataset"));
}

TEST(EdgeOptions, ABackoffThatShrinksIsRefused) {
  EdgeOptions options;
  options.connection.backoff_min = std::chrono::seconds(60);
  options.connection.backoff_max = std::chrono::seconds(59);
  const auto valid = validate(options);
  ASSERT_FALSE(valid);
  EXPECT_THAT(valid.error().message(), HasSubstr("backoff-min = 1m"));
}

}  // namespace
}  // namespace starling::edge_client

// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fedavg.h"

#include <gtest/gtest.h>

#include <limits>

namespace starling::strategy {
namespace {

model::Parameters parameters(const std::vector<float>& values) {
  auto layout =
      model::Layout::make({{.name = "w", .shape = {static_cast<std::int64_t>(values.size())}}});
  model::Parameters result(layout.value());
  std::copy(values.begin(), values.end(), result.values().begin());
  return result;
}

TEST(FedAvgClient, ContributesWhatTrainingChanged) {
  const std::vector<float> base{1, 2, 3};
  const SharedBytes payload = FedAvgClient().contribute(base, {1.5F, 2, 0});
  const auto* delta = reinterpret_cast<const float*>(payload.view().data());
  EXPECT_EQ(payload.size(), 12U);
  EXPECT_EQ(delta[0], 0.5F);
  EXPECT_EQ(delta[1], 0);
  EXPECT_EQ(delta[2], -3);
}

TEST(FedAvgServer, AddsTheMeanDelta) {
  FedAvgServer server;
  const auto next = server.apply(parameters({1, 2, 3}), {.vectors = {{0.25, 0, -1}}});
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, parameters({1.25F, 2, 2}));
}

TEST(FedAvgServer, AModelThatNobodyChangedStaysTheSameToTheBit) {
  FedAvgServer server;
  const model::Parameters base = parameters({0.1F, -1e-38F, 3e38F});
  EXPECT_EQ(server.apply(base, {.vectors = {{0, 0, 0}}}).value(), base);
}

TEST(FedAvgServer, RefusesAModelThatWouldNotBeFinite) {
  FedAvgServer server;
  const auto next = server.apply(parameters({3e38F}), {.vectors = {{3e38}}});
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code(), "diverged");
}

TEST(FedAvgServer, AsksForOneVectorOfTheModelsSize) {
  const update::Schema schema =
      FedAvgServer().schema(*parameters({1, 2, 3}).layout(), {.contributions_max = 5});
  ASSERT_EQ(schema.vectors.size(), 1U);
  EXPECT_EQ(schema.vectors[0].elements, 3U);
  EXPECT_EQ(schema.bounds.contributions_max, 5U);
}

TEST(Strategies, AnUnknownNameIsRefusedWithThoseThatExist) {
  const auto client = make_client_strategy({.name = "fedmagic"});
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code(), "unknown-strategy");
  EXPECT_NE(client.error().message().find("fedavg"), std::string::npos);
  EXPECT_FALSE(make_server_strategy({.name = ""}));
  EXPECT_TRUE(make_server_strategy({}));
}

}  // namespace
}  // namespace starling::strategy

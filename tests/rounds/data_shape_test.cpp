// SPDX-License-Identifier: Apache-2.0
#include "coordinator/data_shape.h"

#include <gtest/gtest.h>

#include "coordinator/job_warnings.h"

namespace starling::coordinator {
namespace {

class DataShapeTest : public ::testing::Test {
 protected:
  void admit(const std::string& name, const Greeting& greeting) {
    clients.handle(ClientAdmitted{name, true, greeting});
  }
  // Of a client that has connected to this process.
  void greet(const std::string& name, std::uint64_t session, const protocol::Hello& hello) {
    clients.handle(ClientAdmitted{name});
    clients.handle(SessionOpened{SessionId(session), name});
    clients.greet(SessionId(session), hello);
  }

  CoordinatorOptions options;
  Turn turn;
  ClientTable clients{options,
                      turn,
                      {[](const auto&, const auto&) {}, [](const auto&, const auto&) {},
                       [](const auto&) {}, [](const auto&, TaskId) {}}};
  Job job;
};

Greeting of(std::vector<std::uint32_t> input, std::uint32_t classes) {
  return {.rows = 10, .abilities = {"fedavg"}, .input = std::move(input), .classes = classes};
}

TEST_F(DataShapeTest, IsThatOfMostClientsWithTheMostClassesAmongThem) {
  EXPECT_EQ(learn_shape(job, clients), std::nullopt) << "nobody is there";
  admit("old", {.rows = 3});
  EXPECT_EQ(learn_shape(job, clients), std::nullopt) << "nobody says it";
  admit("a", of({784}, 9));
  admit("b", of({784}, 10));
  admit("c", of({1, 28, 28}, 99));
  const auto learned = learn_shape(job, clients);
  ASSERT_TRUE(learned);
  EXPECT_EQ(learned->shape.input, std::vector<int>({784}));
  EXPECT_EQ(learned->shape.classes, 10);
  EXPECT_EQ(learned->announced, 3U);
  EXPECT_EQ(learned->line(), "data: 784 features, 10 classes, as 2 of 4 clients announced");
}

TEST_F(DataShapeTest, OneOfManyDoesNotSayAloneHowManyClassesThereAre) {
  admit("a", of({784}, 10));
  admit("b", of({784}, 1 << 20));
  admit("c", of({784}, 9));
  EXPECT_EQ(learn_shape(job, clients)->shape.classes, 10);
}

TEST_F(DataShapeTest, OfEquallyManyTheFirstInLexicographicOrder) {
  admit("a", of({784}, 2));
  admit("b", of({3, 32, 32}, 2));
  admit("c", of({3, 4, 99}, 2));
  EXPECT_EQ(learn_shape(job, clients)->line(),
            "data: 3x4x99, 2 classes, as 1 of 3 clients announced");
}

TEST_F(DataShapeTest, WhatTheJobSaysStays) {
  admit("a", of({784}, 12));
  admit("b", of({784}, 12));
  admit("c", of({6}, 3));
  job.training.data.input = {6};
  EXPECT_TRUE(lacks_shape(job)) << "the classes are still missing";
  EXPECT_EQ(learn_shape(job, clients)->shape.classes, 3);
  job.training.data = {{}, 10};
  EXPECT_EQ(learn_shape(job, clients)->shape.input, std::vector<int>({6})) << "12 are too many";
  EXPECT_EQ(learn_shape(job, clients)->shape.classes, 10);
}

TEST_F(DataShapeTest, ClientsCannotAskForWhatAnOperatorCannot) {
  admit("none", of({784}, 1));
  admit("many", of({784}, (1U << 20) + 1));
  admit("wide", of({UINT32_MAX}, 2));
  admit("flat", of({28, 28}, 2));
  admit("zero", of({0}, 2));
  EXPECT_EQ(learn_shape(job, clients), std::nullopt);
}

TEST_F(DataShapeTest, IsMissingUnlessTheJobOrItsEvaluationSaysIt) {
  EXPECT_TRUE(lacks_shape(job));
  job.evaluate.dataset = "synthetic:features=3";
  EXPECT_FALSE(lacks_shape(job));
  job.evaluate.every = 0;
  EXPECT_TRUE(lacks_shape(job)) << "the data set is not read";
  job.training.data = {{3}, 2};
  EXPECT_FALSE(lacks_shape(job));
}

TEST_F(DataShapeTest, MayComeWithAClientThatHasNotConnectedYet) {
  EXPECT_TRUE(shape_may_come(clients)) << "one will join";
  greet("a", 1, {.rows = 3});
  EXPECT_FALSE(shape_may_come(clients));
  admit("b", {});
  EXPECT_TRUE(shape_may_come(clients));
}

TEST_F(DataShapeTest, AWarningWhereNobodyHoldsRowsOut) {
  job.evaluate.federated_every = 1;
  EXPECT_TRUE(job_warnings(job, clients).empty()) << "nobody has spoken yet";
  admit("a", of({3}, 2));
  admit("new", {});
  ASSERT_EQ(job_warnings(job, clients).size(), 1U);
  EXPECT_EQ(job_warnings(job, clients)[0],
            "evaluate.federated-every is set, and of the 1 client that connected so far none holds "
            "rows out for it (data.hold-out in edge.toml)");
  admit("b", {.rows = 3, .abilities = {"evaluate", "fedavg"}});
  EXPECT_TRUE(job_warnings(job, clients).empty());
  job.evaluate.federated_every = 0;
  admit("b", of({3}, 2));
  EXPECT_TRUE(job_warnings(job, clients).empty());
}

}  // namespace
}  // namespace starling::coordinator

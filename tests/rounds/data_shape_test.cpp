// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/data_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/machine/job_warnings.h"

namespace starling::coordinator {
namespace {

using ::testing::HasSubstr;

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

TEST_F(DataShapeTest, IsThatOfMoreThanHalfOfTheClientsThatSayOne) {
  EXPECT_EQ(learn_shape(job, clients).error().code(), "no-data-shape") << "no client has joined";
  admit("old", {.rows = 3});
  EXPECT_EQ(learn_shape(job, clients).error().code(), "no-data-shape") << "no client says it";
  admit("a", of({784}, 10));
  admit("b", of({784}, 10));
  admit("c", of({1, 28, 28}, 99));
  const auto learned = learn_shape(job, clients);
  ASSERT_TRUE(learned);
  EXPECT_EQ(learned->shape.input, std::vector<int>({784}));
  EXPECT_EQ(learned->shape.classes, 10);
  EXPECT_EQ(learned->announced, 3U);
  EXPECT_EQ(learned->line(), "data: 784 features, 10 classes, as 2 of 4 clients announced");
}

TEST_F(DataShapeTest, OneOrTwoAmongManyDoNotSayHowManyClassesThereAre) {
  for (const char* name : {"a", "b", "c"}) admit(name, of({784}, 10));
  admit("x", of({784}, 1 << 20));
  EXPECT_EQ(learn_shape(job, clients)->shape.classes, 10) << "one needs another one";
  for (const char* name : {"d", "e", "f"}) admit(name, of({784}, 10));
  admit("y", of({784}, 1 << 20));
  const auto learned = learn_shape(job, clients);
  EXPECT_EQ(learned->shape.classes, 10) << "2 of 8 are a quarter and not more";
  EXPECT_EQ(learned->line(),
            "data: 784 features, as 8 of 8 clients announced; 10 classes, as 6 of them did; 2 "
            "announced more and are left out");
}

// A device whose rows lack the last classes announces fewer.
TEST_F(DataShapeTest, MoreThanAQuarterSayHowManyClassesThereAre) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) admit(name, of({784}, 9));
  for (const char* name : {"g", "h"}) admit(name, of({784}, 10));
  admit("i", of({784}, 11));
  const auto learned = learn_shape(job, clients);
  EXPECT_EQ(learned->shape.classes, 10) << "two have 10 and one exceeds it: 3 of 9";
  EXPECT_EQ(learned->line(),
            "data: 784 features, as 9 of 9 clients announced; 10 classes, as 2 of them did; 1 "
            "announced more and is left out");
}

TEST_F(DataShapeTest, OfTwoClientsTheLargerNumberOfClassesCounts) {
  admit("a", of({784}, 9));
  admit("b", of({784}, 10));
  EXPECT_EQ(learn_shape(job, clients)->shape.classes, 10);
  job.training.data = {{}, 0, {"a", "b", "c", "d", "e", "f"}};
  EXPECT_EQ(learn_shape(job, clients)->shape.columns, job.training.data.columns);
}

TEST_F(DataShapeTest, WithoutAMajorityItSaysWhoHasWhich) {
  admit("a", of({784}, 2));
  admit("b", of({3, 32, 32}, 2));
  for (const char* name : {"c", "d", "e", "f", "g"}) admit(name, of({784}, 9));
  for (const char* name : {"h", "i", "j", "k"}) admit(name, of({1, 28, 28}, 10));
  admit("l", of({32}, 10));
  EXPECT_EQ(learn_shape(job, clients).error().code(), "shapes-differ");
  EXPECT_EQ(describe_disagreement(job, clients),
            "no shape of data is that of more than half of the 12 clients that say theirs: 28x28 "
            "(h, i, j, k); 3x32x32 (b); 32 features (l); 784 features (a, c, d and 3 more); set "
            "data.input and data.classes");
}

TEST_F(DataShapeTest, ClientsAloneDoNotAskForAHugeModel) {
  for (const char* name : {"a", "b", "c", "d"}) admit(name, of({784}, 1 << 20));
  const auto learned = learn_shape(job, clients);
  ASSERT_TRUE(learned);
  EXPECT_TRUE(check_learned_size(*learned, 1 << 26));
  const auto refused = check_learned_size(*learned, (1 << 26) + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().category(), ErrorCategory::kUsage);
  EXPECT_EQ(refused.error().message(),
            "with 784 features and 1048576 classes, as 4 of 4 clients announced, the model would "
            "have 67108865 parameters; more than 67108864 need data.input and data.classes in the "
            "job");
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
  EXPECT_FALSE(learn_shape(job, clients));
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

TEST_F(DataShapeTest, AWarningWhereTooFewClientsHaveTheDataOfARun) {
  job.training.data = {{784}, 10};
  job.round.cohort = 2;
  for (const char* name : {"a", "b"}) admit(name, of({1, 28, 28}, 10));
  admit("c", of({5}, 2));
  admit("new", {});
  ASSERT_EQ(job_warnings(job, clients).size(), 1U);
  EXPECT_EQ(job_warnings(job, clients)[0],
            "1 of 4 admitted clients can do this run, which needs 2; 2 cannot, each because its "
            "rows have another shape ([1, 28, 28], 10 classes)");
  admit("d", of({784}, 10));
  EXPECT_TRUE(job_warnings(job, clients).empty()) << "enough, with the one that has not spoken";
}

TEST_F(DataShapeTest, AWarningWhereClientsHaveMoreClassesThanARun) {
  job.training.data = {{784}, 10};
  job.round.cohort = 2;
  for (const char* name : {"a", "b"}) admit(name, of({784}, 10));
  EXPECT_TRUE(job_warnings(job, clients).empty());
  admit("c", of({784}, 12));
  admit("d", of({5}, 12));
  ASSERT_EQ(job_warnings(job, clients).size(), 1U) << "there are enough, and yet";
  EXPECT_EQ(job_warnings(job, clients)[0],
            "1 of 4 admitted clients announce more than the 10 classes of this run, up to 12, and "
            "are left out of it; data.classes sets the number");
}

TEST_F(DataShapeTest, AWarningWhereNobodyHoldsRowsOut) {
  job.evaluate.federated_every = 1;
  EXPECT_TRUE(job_warnings(job, clients).empty()) << "nobody has spoken yet";
  admit("a", of({3}, 2));
  admit("new", {});
  ASSERT_EQ(job_warnings(job, clients).size(), 1U);
  EXPECT_EQ(job_warnings(job, clients)[0],
            "evaluate.federated-every is set, and of the 1 client that connected so far none holds "
            "rows out for it (data.hold-out in edge.toml, or a trainer's 'evaluate')");
  admit("b", {.rows = 3, .abilities = {"evaluate", "fedavg"}});
  EXPECT_TRUE(job_warnings(job, clients).empty());
  job.evaluate.federated_every = 1;
  job.aggregation.rule = "trimmed-mean";
  const auto warnings = job_warnings(job, clients);
  EXPECT_THAT(warnings, ::testing::Contains(::testing::HasSubstr("can evaluate, which needs 3")));
  job.aggregation.rule = "mean";
  job.evaluate.federated_every = 0;
  admit("b", of({3}, 2));
  EXPECT_TRUE(job_warnings(job, clients).empty());
}

TEST_F(DataShapeTest, AWarningWhereThoseThatHoldRowsOutCannotEvaluate) {
  job.evaluate.federated_every = 1;
  job.training.data = {{3}, 2};
  job.round.cohort = 1;
  const auto holding = [](std::vector<std::uint32_t> input) {
    Greeting greeting = of(std::move(input), 2);
    greeting.abilities = {"evaluate", "fedavg"};
    return greeting;
  };
  admit("new", {});
  admit("a", of({3}, 2));
  for (const char* name : {"b", "c"}) admit(name, holding({4}));
  ASSERT_EQ(job_warnings(job, clients).size(), 1U);
  EXPECT_EQ(job_warnings(job, clients)[0],
            "evaluate.federated-every is set, and of the 3 clients that connected so far none can "
            "evaluate, which needs 1; 2 cannot, each because its rows have another shape ([4], 2 "
            "classes)");
  admit("d", holding({3}));
  EXPECT_TRUE(job_warnings(job, clients).empty());
  job.aggregation.rule = "trimmed-mean";
  EXPECT_THAT(job_warnings(job, clients).at(0),
              HasSubstr("of the 4 clients that connected so far 1 can evaluate, which needs 3; "));
}

}  // namespace
}  // namespace starling::coordinator

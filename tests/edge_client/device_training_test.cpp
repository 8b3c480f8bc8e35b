// SPDX-License-Identifier: Apache-2.0
#include "edge_client/device_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/client/fake_trainer.h"

namespace starling::edge_client {
namespace {

using ::testing::Contains;
using ::testing::Not;

class DeviceTrainingByAProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c ''") != 0) GTEST_SKIP() << "there is no python3";
  }
};

TEST_F(DeviceTrainingByAProgram, SaysWhatTheProgramOffers) {
  client::FakeTrainer fake("honest");
  const auto training = train_by_program(fake.options, fake.stop, fake.log);
  ASSERT_TRUE(training) << training.error().message();
  EXPECT_EQ(training->trainers.size(), 1U);
  EXPECT_THAT(training->abilities, Contains("model-external"));
  EXPECT_THAT(training->abilities, Contains("evaluate"));
  EXPECT_THAT(training->abilities, Contains("scaffold"));
  EXPECT_EQ(fake.log.count("initialize, fit, evaluate, gradient; 3 tensors, 5 values; 40 rows"),
            1U);
}

// Its model may follow from the settings of a run, which a device does not know when it starts.
TEST_F(DeviceTrainingByAProgram, OneThatNeedsTheSettingsOfARunTrains) {
  client::FakeTrainer fake("needs-settings");
  const auto training = train_by_program(fake.options, fake.stop, fake.log);
  ASSERT_TRUE(training) << training.error().message();
  EXPECT_THAT(training->abilities, Contains("model-external"));
  EXPECT_THAT(training->abilities, Not(Contains("evaluate")));
  EXPECT_EQ(fake.log.count("KeyError: 'hidden'"), 1U);
}

TEST_F(DeviceTrainingByAProgram, OneThatEndsIsAnError) {
  client::FakeTrainer fake("dies-at-start");
  const auto training = train_by_program(fake.options, fake.stop, fake.log);
  ASSERT_FALSE(training);
  EXPECT_EQ(training.error().code(), "trainer-died");
}

}  // namespace
}  // namespace starling::edge_client

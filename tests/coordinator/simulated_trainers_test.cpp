// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulated_trainers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/fake_trainer.h"

namespace starling::coordinator {
namespace {

TEST(SimulatedTrainers, AStrategyThatTheTrainerCannotDoIsRefusedWithThoseThatItCan) {
  client::FakeTrainer fake("fit-only");
  Job job;
  job.training.model.kind = "external";
  const auto& strategies = strategy::builtin_strategies();
  for (const char* name : {"fedavg", "fedadam"}) {
    job.training.strategy.name = name;
    const auto made = SimulatedTrainers::start(job, strategies, fake.options.trainer, 1, fake.log);
    EXPECT_TRUE(made) << name;
  }
  job.training.strategy.name = "scaffold";
  const auto made = SimulatedTrainers::start(job, strategies, fake.options.trainer, 1, fake.log);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(),
              ::testing::MatchesRegex("strategy.name = \"scaffold\" needs the operation "
                                      "'gradient', which the trainer 'fake.py' does not offer: "
                                      "implement it, or choose .*fedadam.* or .*"));
  EXPECT_THAT(made.error().message(), ::testing::HasSubstr("fedavg"));
  EXPECT_THAT(made.error().message(), ::testing::Not(::testing::HasSubstr("fednova")));
}

}  // namespace
}  // namespace starling::coordinator

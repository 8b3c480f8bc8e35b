// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/fallback_run.h"

#include <gtest/gtest.h>

#include <array>

namespace starling::gossip {
namespace {

TEST(FallbackRun, CountsWhatEarlierProcessesTrained) {
  FallbackRun run{
      .run_id = "run", .pace = {}, .before = {.model = {}, .exchanges = 4, .steps = 10, .loss = 2}};
  const std::array<float, 2> model{0.5F, -1};
  const auto before = run.trained(model);
  EXPECT_EQ(before.model.size(), sizeof(model));
  EXPECT_EQ(before.exchanges, 4U);
  EXPECT_EQ(before.steps, 10U);
  EXPECT_EQ(before.loss, 2);
  run.mixed = TrainingProgress{.exchange = 6, .step = 40, .loss_sum = 60, .loss_steps = 30};
  const auto mixed = run.trained(model);
  EXPECT_EQ(mixed.exchanges, 6U);
  EXPECT_EQ(mixed.steps, 40U);
  EXPECT_EQ(mixed.loss, 2) << "(10 * 2 + 60) / (10 + 30)";
}

TEST(FallbackRun, HasNoLossBeforeItsFirstStep) {
  const FallbackRun run{.run_id = "run", .pace = {}, .before = {}};
  EXPECT_EQ(run.trained({}).loss, 0);
}

}  // namespace
}  // namespace starling::gossip

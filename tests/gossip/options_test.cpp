// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "core/base/durable_file.h"
#include "core/config/binder.h"
#include "core/data/partition.h"
#include "tests/support/paths.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;

const std::string kReadme = starling::testing::source_root() / "gossip/README.md";

TEST(NetOptions, TheReadmeHasEveryKey) {
  NetOptions options;
  config::Binder binder;
  options.bind(binder);
  const auto readme = read_text_file(kReadme, 1 << 20);
  ASSERT_TRUE(readme);
  const auto checked = config::check_documentation(binder.documents(), "net", *readme);
  EXPECT_TRUE(checked) << checked.error().message();
}

Result<void> read(NetOptions& options, const std::string& toml) {
  config::Binder binder;
  options.bind(binder);
  return binder.read_toml(toml, "net.toml");
}

// What stands between these two lines of the README.
std::string section(const std::string& begin, const std::string& end) {
  const auto readme = read_text_file(kReadme, 1 << 20);
  EXPECT_TRUE(readme);
  const std::size_t first = readme->find(begin);
  const std::size_t last = readme->find(end, first);
  EXPECT_NE(last, std::string::npos) << begin;
  return readme->substr(first + begin.size(), last - first - begin.size());
}

TEST(NetOptions, TheReadmesFileIsTaken) {
  NetOptions options;
  const auto taken = read(options, section("```toml\n", "```\n"));
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_TRUE(options.validate());
  EXPECT_EQ(options.topology.spec, "base-graph:k=1");
}

TEST(NetOptions, AColumnIsNamedOnce) {
  NetOptions options;
  options.data.columns = {"b", "a", "c"};
  EXPECT_TRUE(options.validate());
  options.data.columns.emplace_back("a");
  const auto taken = options.validate();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().message(), "data.columns names 'a' twice");
}

TEST(NetOptions, TheReadmesPartitionsAreAllAndTaken) {
  const std::string table =
      section("<!-- partitions -->\n| `data.partition`", "<!-- /partitions -->");
  std::set<data::Scheme> schemes;
  const std::regex code("`([a-z-]+(:[^`]*)?)`(?=[^|]*\\|[^|]*\\|\n)");
  for (std::sregex_iterator at(table.begin(), table.end(), code), none; at != none; ++at) {
    const auto spec = data::PartitionSpec::parse((*at)[1].str());
    ASSERT_TRUE(spec) << spec.error().message();
    schemes.insert(spec->scheme);
  }
  EXPECT_EQ(schemes.size(), static_cast<std::size_t>(data::Scheme::kBalancedDirichlet) + 1);
}

TEST(NetOptions, AKeyOfAJobThatMeansNothingHereIsRefused) {
  for (const char* key : {"local-epochs = 2", "warmup-rounds = 3", "step-rounds = 2"}) {
    NetOptions options;
    const auto taken = read(options, std::string("[train]\n") + key + "\n");
    ASSERT_FALSE(taken) << key;
    EXPECT_EQ(taken.error().code(), "unknown-key");
    EXPECT_THAT(taken.error().message(), HasSubstr("net.toml:2: "));
  }
}

TEST(StepSchedule, StepsAfterMixingsAreThoseOfThePeriods) {
  for (const std::uint64_t from : {0U, 3U, 50U}) {
    NetOptions options;
    options.run.steps = 20;
    options.train.train.local_steps = 4;
    options.train.local_steps_from = from;
    std::uint64_t step = 0;
    for (std::uint64_t mixings = 0; mixings < 30; ++mixings) {
      EXPECT_EQ(options.schedule().after(mixings), step) << from << " " << mixings;
      step += std::min(static_cast<std::uint64_t>(options.train.period_at(step)), 20 - step);
    }
  }
}

TEST(StepSchedule, MixingsUntilAStepAreTheFewestThatReachIt) {
  for (const std::uint64_t from : {0U, 3U, 50U}) {
    const StepSchedule schedule{.steps = 20, .local_steps = 4, .local_steps_from = from};
    for (std::uint64_t step = 1; step <= 20; ++step) {
      const std::uint64_t mixings = schedule.mixings_until(step);
      EXPECT_GE(schedule.after(mixings), step) << from;
      EXPECT_LT(schedule.after(mixings - 1), step) << from;
    }
  }
}

TEST(StepSchedule, AnyNumberOfMixingsHasItsStep) {
  const StepSchedule schedule{.steps = 1000, .local_steps = 1000000000, .local_steps_from = 3};
  EXPECT_EQ(schedule.after(~std::uint64_t{0}), 1000U);
  EXPECT_EQ(schedule.after(4), 1000U);
  EXPECT_EQ(schedule.after(3), 3U);
}

TEST(NetOptions, LocalStepsBeginWhereTheyAreSaidTo) {
  NetOptions options;
  EXPECT_EQ(options.train.period_at(0), 1);
  ASSERT_TRUE(read(options, "[train]\nlocal-steps = 8\nlocal-steps-from = 100\n"));
  EXPECT_EQ(options.train.period_at(99), 1);
  EXPECT_EQ(options.train.period_at(100), 8);
}

TEST(NetOptions, TwentyEvaluationsUnlessSaid) {
  NetOptions options;
  options.run.steps = 400;
  EXPECT_EQ(options.evaluate_every(), 20);
  options.run.steps = 7;
  EXPECT_EQ(options.evaluate_every(), 1);
  options.evaluate.every = 50;
  EXPECT_EQ(options.evaluate_every(), 50);
}

TEST(NetOptions, TopologiesAreDrawnFromTheRunsSeedUnlessTheyHaveTheirOwn) {
  NetOptions options;
  options.run.seed = 5;
  EXPECT_EQ(options.topology_seed(), 5);
  options.topology.seed = 9;
  EXPECT_EQ(options.topology_seed(), 9);
}

}  // namespace
}  // namespace starling::gossip

// SPDX-License-Identifier: Apache-2.0
#include "core/study/study_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::study {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct PlanOptions {
  std::uint64_t seed = 1;
  int steps = 10;
  double rate = 0.1;
  std::string topology = "ring";
};

template <class V>
void describe(V& visit, PlanOptions& o) {
  visit("seed", o.seed, FieldInfo{});
  visit("steps", o.steps, FieldInfo{.min = 1, .max = 100});
  visit("train.rate", o.rate, FieldInfo{});
  visit("topology.spec", o.topology, FieldInfo{});
}

class StudyPlan : public ::testing::Test {
 protected:
  StudyPlan() { binder_.bind("", options_); }

  Result<Plan> plan(std::optional<std::string> seeds, std::vector<std::string> sweeps) {
    return make_plan({.seeds = std::move(seeds), .sweeps = std::move(sweeps)}, binder_);
  }
  std::vector<std::string> names(std::optional<std::string> seeds,
                                 std::vector<std::string> sweeps) {
    const auto made = plan(std::move(seeds), std::move(sweeps));
    EXPECT_TRUE(made) << made.error().message();
    std::vector<std::string> found;
    for (const PlannedRun& run : made->runs) found.push_back(run.name);
    return found;
  }
  std::string refusal(std::optional<std::string> seeds, std::vector<std::string> sweeps) {
    const auto made = plan(std::move(seeds), std::move(sweeps));
    if (made) return "accepted";
    EXPECT_EQ(made.error().category(), ErrorCategory::kUsage);
    return made.error().message();
  }

  PlanOptions options_;
  config::Binder binder_;
};

TEST_F(StudyPlan, SeedsAreARangeANumberOrAList) {
  EXPECT_THAT(names("1..3", {}), ElementsAre("seed=1", "seed=2", "seed=3"));
  EXPECT_THAT(names("7", {}), ElementsAre("seed=7"));
  EXPECT_THAT(names("1,3,5..6", {}), ElementsAre("seed=1", "seed=3", "seed=5", "seed=6"));
}

TEST_F(StudyPlan, IsTheGridOfAllAxesWithTheSeedsInnermost) {
  const auto made = plan("1..2", {"topology.spec=ring,torus:4x4", "train.rate=0.10,1e-2"});
  ASSERT_TRUE(made) << made.error().message();
  ASSERT_EQ(made->runs.size(), 8U);
  EXPECT_EQ(made->runs[0].name, "topology.spec=ring,train.rate=0.1,seed=1");
  EXPECT_EQ(made->runs[1].name, "topology.spec=ring,train.rate=0.1,seed=2");
  EXPECT_EQ(made->runs[7].name, "topology.spec=torus-4x4,train.rate=0.01,seed=2");
  EXPECT_EQ(made->runs[7].settings,
            (Settings{{"topology.spec", "torus:4x4"}, {"train.rate", "0.01"}, {"seed", "2"}}));
  EXPECT_EQ(describe(*made), "8 runs: topology.spec (2) x train.rate (2) x seed (2)");
}

TEST_F(StudyPlan, LeavesTheOptionsAsTheyWere) {
  ASSERT_TRUE(plan("4..5", {"steps=3,4"}));
  EXPECT_EQ(options_.steps, 10);
  EXPECT_EQ(options_.seed, 1U);
}

TEST_F(StudyPlan, SweptSectionsCountAsSaid) {
  EXPECT_FALSE(binder_.says("train"));
  ASSERT_TRUE(plan(std::nullopt, {"train.rate=1,2"}));
  EXPECT_TRUE(binder_.says("train"));
}

TEST_F(StudyPlan, AValueWithACommaStandsInQuotes) {
  const auto made = plan(std::nullopt, {R"(topology.spec=ring,"watts-strogatz:k=4,beta=0.1")"});
  ASSERT_TRUE(made) << made.error().message();
  ASSERT_EQ(made->runs.size(), 2U);
  EXPECT_EQ(made->runs[1].settings.front().second, "watts-strogatz:k=4,beta=0.1");
  EXPECT_EQ(made->runs[1].name, "topology.spec=watts-strogatz-k=4,beta=0.1");
}

TEST_F(StudyPlan, AKeyWhoseFlagIsGivenIsNotSwept) {
  ASSERT_TRUE(binder_.read_toml("steps = 7\ntrain.rate = 0.5", "net.toml"));
  binder_.note_flag("train.rate");
  EXPECT_EQ(refusal(std::nullopt, {"train.rate=0.1,0.2"}),
            "--sweep says the values of train.rate, and so does its own flag: leave one of the two "
            "out");
  EXPECT_THAT(names(std::nullopt, {"steps=3,4"}), ElementsAre("steps=3", "steps=4"))
      << "what a file says is swept";
  binder_.note_flag("seed");
  EXPECT_THAT(refusal("1..3", {}), HasSubstr("--seeds says the values of seed"));
}

TEST_F(StudyPlan, MistakesAreOneSentenceEach) {
  EXPECT_THAT(refusal("5..1", {}), HasSubstr("--seeds 5..1: the range runs backwards; write 1..5"));
  EXPECT_THAT(refusal("1..1000000000", {}), HasSubstr("a study has at most 10000 runs"));
  EXPECT_THAT(refusal("0..18446744073709551615", {}), HasSubstr("a study has at most 10000 runs"));
  for (const char* seeds : {"", "x", "1..", "..3", "1,,3", "-1", "1.5", "1...3", "1..3,"}) {
    EXPECT_THAT(refusal(seeds, {}),
                HasSubstr("write a range such as 1..5, or a list such as 1,3,7"))
        << seeds;
  }
  EXPECT_THAT(refusal("1,1", {}), HasSubstr("--seeds: seed has the value 1 twice"));
  EXPECT_THAT(refusal(std::nullopt, {"steps"}), HasSubstr("write KEY=VALUE,VALUE,..."));
  EXPECT_THAT(refusal(std::nullopt, {"steps="}), HasSubstr("--sweep steps: it names no value"));
  EXPECT_THAT(refusal(std::nullopt, {"stepps=1,2"}),
              HasSubstr("--sweep: unknown key 'stepps'; the nearest known key is 'steps'"));
  EXPECT_THAT(refusal(std::nullopt, {"steps=1,many"}), HasSubstr("--sweep: steps = 'many'"));
  EXPECT_THAT(refusal(std::nullopt, {"steps=1,101"}), HasSubstr("steps = '101'"));
  EXPECT_THAT(refusal(std::nullopt, {"train.rate=0.1,0.10"}),
              HasSubstr("train.rate has the value 0.1 twice"));
  EXPECT_THAT(refusal(std::nullopt, {"steps=1,2", "steps=3"}), HasSubstr("steps is swept twice"));
  EXPECT_THAT(refusal("1..3", {"seed=1,2"}), HasSubstr("seed is swept twice"));
  EXPECT_THAT(refusal("1..10000", {"steps=1,2"}), HasSubstr("more than the 10000 runs"));
}

TEST(StudyDirectoryNames, AreSafeAndDiffer) {
  EXPECT_THAT(directory_names({"a=csv:/data/my file.csv", "a=b:c", "a=b c", "a=\xC3\xA4/../x"}),
              ElementsAre("a=csv--data-my-file.csv", "a=b-c", "a=b-c~2", "a=---..-x"));
  const std::string end(300, 'x');
  const auto names = directory_names({"a=" + end + "1", "a=" + end + "2"});
  EXPECT_LT(names[0].size(), 200U);
  EXPECT_NE(names[0], names[1]);
}

}  // namespace
}  // namespace starling::study

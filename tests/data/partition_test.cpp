// SPDX-License-Identifier: Apache-2.0
#include "core/data/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace starling::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Parts = std::vector<std::vector<std::uint32_t>>;

// rows / classes rows of each class, one after the other in turn.
class Rows {
 public:
  Rows(std::size_t rows, int classes) : labels_(rows), classes_(classes) {
    for (std::size_t i = 0; i < rows; ++i) labels_[i] = static_cast<int>(i) % classes;
  }
  operator RowLabels() const { return {labels_, classes_}; }  // NOLINT: reads better in tests

 private:
  std::vector<std::int32_t> labels_;
  int classes_;
};

Parts divide(const RowLabels& rows, std::string_view spec, std::size_t parts) {
  return partition(rows, PartitionSpec::parse(spec).value(), parts).value();
}
std::string refusal(const RowLabels& rows, std::string_view spec, std::size_t parts) {
  const auto result = partition(rows, PartitionSpec::parse(spec).value(), parts);
  return result ? "accepted" : result.error().code() + ": " + result.error().message();
}
std::vector<std::size_t> sizes_of(const Parts& parts) {
  std::vector<std::size_t> sizes;
  for (const auto& part : parts) sizes.push_back(part.size());
  return sizes;
}
std::size_t classes_in(const RowLabels& rows, const std::vector<std::uint32_t>& part) {
  std::set<std::int32_t> seen;
  for (std::uint32_t row : part) seen.insert(rows.labels[row]);
  return seen.size();
}

class EveryScheme : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryScheme, UsesEveryRowOnceInAscendingOrder) {
  const Rows rows(2003, 7);
  for (std::size_t count : {1, 2, 6}) {
    const Parts parts = divide(rows, GetParam(), count);
    ASSERT_EQ(parts.size(), count);
    std::vector<std::uint32_t> all;
    for (const auto& part : parts) {
      EXPECT_TRUE(std::ranges::is_sorted(part));
      EXPECT_FALSE(part.empty());
      all.insert(all.end(), part.begin(), part.end());
    }
    std::ranges::sort(all);
    std::vector<std::uint32_t> expected(2003);
    std::iota(expected.begin(), expected.end(), 0U);
    EXPECT_EQ(all, expected);
  }
}

TEST_P(EveryScheme, RepeatsForTheSameSeedOnly) {
  const Rows rows(2000, 8);
  const std::string spec = GetParam();
  const std::string seeded = spec + (spec.find(':') == spec.npos ? ":" : ",");
  EXPECT_EQ(divide(rows, spec, 5), divide(rows, seeded + "seed=1", 5));
  EXPECT_NE(divide(rows, spec, 5), divide(rows, seeded + "seed=2", 5));
}

INSTANTIATE_TEST_SUITE_P(Partition, EveryScheme,
                         ::testing::Values("iid", "shards", "shards:per-part=5", "dirichlet",
                                           "dirichlet:alpha=100", "pathological:classes=7",
                                           "quantity:alpha=2", "exponential", "square", "linear",
                                           "balanced-dirichlet:alpha=0.1"));

TEST(Partition, IidSizesDifferByAtMostOne) {
  EXPECT_THAT(sizes_of(divide(Rows(103, 10), "iid", 10)),
              ElementsAre(11, 11, 11, 10, 10, 10, 10, 10, 10, 10));
}

// FedAvg (McMahan et al., AISTATS 2017), section 3: 60,000 examples sorted by digit, 200 shards of
// 300, two each for 100 clients: "most clients will only have examples of two digits".
TEST(Partition, ShardsAreThoseOfTheFedAvgPaper) {
  const Rows rows(60'000, 10);
  const Parts parts = divide(rows, "shards", 100);
  EXPECT_THAT(sizes_of(parts), Each(600));
  for (const auto& part : parts) EXPECT_LE(classes_in(rows, part), 2U);
}

// p ~ Dirichlet(a 1_N): E p = 1/N, Var p = (N - 1) / (N^2 (N a + 1)). Over many independent classes
// the sample moments must agree; the cut rounds each share by less than one row in 1000.
TEST(Partition, DirichletSharesHaveTheMomentsOfTheory) {
  constexpr int kClasses = 400;
  constexpr std::size_t kParts = 8;
  const Rows rows(kClasses * 1000, kClasses);
  for (double alpha : {0.2, 0.5, 5.0}) {
    const Parts parts = divide(rows, "dirichlet:alpha=" + std::to_string(alpha), kParts);
    const PartitionSummary summary = summarize(rows, parts);
    double mean = 0;
    double squares = 0;
    for (const auto& counts : summary.histogram) {
      for (std::size_t count : counts) {
        const double share = static_cast<double>(count) / 1000;
        mean += share / (kClasses * kParts);
        squares += share * share / (kClasses * kParts);
      }
    }
    const double variance = (kParts - 1.0) / (kParts * kParts * (kParts * alpha + 1));
    EXPECT_NEAR(mean, 1.0 / kParts, 1e-12);
    EXPECT_NEAR(squares - mean * mean, variance, 0.08 * variance) << alpha;
  }
}

TEST(Partition, DirichletGivesEveryPartItsMinimum) {
  for (int seed = 1; seed <= 20; ++seed) {
    const Parts parts =
        divide(Rows(2000, 10), "dirichlet:alpha=0.1,min=40,seed=" + std::to_string(seed), 10);
    EXPECT_GE(std::ranges::min(sizes_of(parts)), 40U);
  }
}

// 16 parts of ten classes at alpha = 0.01, which plain Dirichlet cannot give a row each.
TEST(Partition, BalancedDirichletIsSkewedAndStillEven) {
  const Rows rows(16'000, 10);
  for (const char* seed : {"1", "2", "3", "4", "5"}) {
    std::size_t classes = 0;
    for (const auto& part :
         divide(rows, std::string("balanced-dirichlet:alpha=0.01,seed=") + seed, 16)) {
      EXPECT_GE(part.size(), 490U);
      EXPECT_LE(part.size(), 2100U);
      classes += classes_in(rows, part);
    }
    EXPECT_LE(classes, 16 * 3U) << "two or three classes a part";
  }
  for (const auto& part : divide(rows, "balanced-dirichlet:alpha=10000", 16)) {
    EXPECT_NEAR(static_cast<double>(part.size()), 1000, 100);
    EXPECT_EQ(classes_in(rows, part), 10U);
  }
}

TEST(Partition, DirichletSkewFollowsAlpha) {
  const Rows rows(10'000, 10);
  std::size_t skewed = 0;
  for (const auto& part : divide(rows, "dirichlet:alpha=0.01,min=1", 10)) {
    skewed += classes_in(rows, part);
  }
  EXPECT_LE(skewed, 30U) << "nearly every class goes to one part";
  for (const auto& part : divide(rows, "dirichlet:alpha=10000", 10)) {
    EXPECT_NEAR(static_cast<double>(part.size()), 1000, 60);
  }
}

TEST(Partition, PathologicalPartsHoldExactlyTheirClasses) {
  const Rows rows(10'000, 10);
  for (const char* spec :
       {"pathological:classes=3", "pathological:classes=3,assign=first-deterministic",
        "pathological:classes=3,assign=deterministic"}) {
    const Parts parts = divide(rows, spec, 20);
    for (const auto& part : parts) EXPECT_EQ(classes_in(rows, part), 3U) << spec;
  }
  // Class c goes to the parts c - 2, c - 1, c (mod 10) as 334, 333, 333 rows in order of the parts.
  EXPECT_THAT(sizes_of(divide(rows, "pathological:classes=3,assign=deterministic", 10)),
              ElementsAre(1002, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 999, 999));
}

TEST(Partition, PathologicalSaysWhichRowsStayUnused) {
  const Rows rows(100, 10);
  const Parts parts = divide(rows, "pathological:classes=1,assign=deterministic", 4);
  EXPECT_THAT(sizes_of(parts), Each(10));
  const PartitionSummary summary = summarize(rows, parts);
  EXPECT_EQ(summary.rows_unused, 60U);
  EXPECT_THAT(to_text(summary), HasSubstr("60 rows unused"));
}

// Flower's definitions: floor(n f(i) / sum f), what is left to the last part.
TEST(Partition, SizesFollowTheirClosedForms) {
  const Rows rows(1000, 10);
  EXPECT_THAT(sizes_of(divide(rows, "linear", 4)), ElementsAre(100, 200, 300, 400));
  EXPECT_THAT(sizes_of(divide(rows, "square", 4)), ElementsAre(33, 133, 300, 534));
  const double total = std::exp(1) + std::exp(2) + std::exp(3);
  EXPECT_THAT(sizes_of(divide(rows, "exponential", 3)),
              ElementsAre(static_cast<std::size_t>(1000 * std::exp(1) / total),
                          static_cast<std::size_t>(1000 * std::exp(2) / total), 666));
}

TEST(Partition, QuantityLeavesLabelsIid) {
  const Rows rows(50'000, 5);
  const Parts parts = divide(rows, "quantity:alpha=0.5", 10);
  const PartitionSummary summary = summarize(rows, parts);
  EXPECT_GT(summary.rows_max, 2 * summary.rows_min) << "sizes differ";
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const double n = static_cast<double>(parts[k].size());
    for (std::size_t count : summary.histogram[k]) {  // binomial(n, 1/5), 5 standard deviations
      EXPECT_NEAR(static_cast<double>(count), n / 5, 5 * std::sqrt(n * 0.16));
    }
  }
}

TEST(Partition, NaturalFollowsTheColumn) {
  const std::vector<std::int32_t> labels = {0, 1, 0, 1, 0};
  const std::vector<std::uint32_t> groups = {2, 0, 1, 0, 2};
  const std::vector<std::string> names = {"a", "b", "c"};
  const RowLabels rows{labels, 2, groups, names};
  EXPECT_THAT(divide(rows, "natural:column=user", 3),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2), ElementsAre(0, 4)));
  EXPECT_THAT(refusal(rows, "natural:column=user", 2), HasSubstr("which has 3 values"));
  EXPECT_THAT(refusal(Rows(10, 2), "natural:column=user", 2),
              HasSubstr("only a csv data set has columns"));
}

TEST(Partition, RefusesTheImpossibleByName) {
  const Rows rows(100, 10);
  EXPECT_THAT(refusal(rows, "iid", 0), HasSubstr("partition-impossible"));
  EXPECT_THAT(refusal(rows, "iid", 101), HasSubstr("of 100 rows into 101 parts has too few rows"));
  EXPECT_THAT(refusal(rows, "dirichlet", 11), HasSubstr("its minimum of 10 rows"));
  EXPECT_THAT(refusal(rows, "dirichlet:alpha=0.01", 10), HasSubstr("in 1000 draws"));
  EXPECT_THAT(refusal(rows, "shards:per-part=4", 30), HasSubstr("would leave shards empty"));
  EXPECT_THAT(refusal(rows, "pathological:classes=11", 5), HasSubstr("more classes than the 10"));
  EXPECT_THAT(refusal(rows, "pathological:classes=10", 11), HasSubstr("needs 11 rows of class 0"));
  EXPECT_THAT(refusal(rows, "exponential", 10), HasSubstr("would leave part 1 without a row"));
  EXPECT_THAT(refusal(Rows(2000, 10), "exponential", 1000), HasSubstr("part 1 without a row"));
}

TEST(PartitionSpec, TextRoundTrips) {
  for (const char* text :
       {"iid", "shards:per-part=3", "dirichlet:alpha=0.5,index=3,of=10,seed=1",
        "dirichlet:alpha=0.1,min=0", "pathological:classes=5,assign=deterministic",
        "quantity:alpha=1e-05", "natural:column=user id", "exponential:seed=18446744073709551615",
        "square:index=10,of=10", "linear"}) {
    const auto spec = PartitionSpec::parse(text).value();
    EXPECT_EQ(PartitionSpec::parse(spec.to_string()).value(), spec) << spec.to_string();
  }
  EXPECT_EQ(PartitionSpec::parse("dirichlet:alpha=0.5,index=3,of=10").value().to_string(),
            "dirichlet:alpha=0.5,min=10,seed=1,index=3,of=10");
  EXPECT_EQ(PartitionSpec::parse("iid:").value().to_string(), "iid:seed=1");
}

TEST(PartitionSpec, RefusesWithASentence) {
  const auto sentence = [](std::string_view text) {
    const auto spec = PartitionSpec::parse(text);
    return spec ? "accepted" : spec.error().code() + ": " + spec.error().message();
  };
  EXPECT_THAT(sentence(""), HasSubstr("the schemes are iid, shards, dirichlet, pathological, "
                                      "quantity, natural, exponential, square, linear and "
                                      "balanced-dirichlet"));
  EXPECT_THAT(sentence("dirichelt:alpha=1"), HasSubstr("did you mean 'dirichlet'?"));
  EXPECT_THAT(sentence("dirichlet:alpa=1"),
              HasSubstr("its keys are alpha, min, seed, index and of; did you mean 'alpha'?"));
  EXPECT_THAT(sentence("iid:alpha=1"), HasSubstr("has no key 'alpha'"));
  EXPECT_THAT(sentence("dirichlet:alpha=0"), HasSubstr("alpha = '0' is out of range"));
  EXPECT_THAT(sentence("dirichlet:alpha=nan"), HasSubstr("alpha = 'nan'"));
  EXPECT_THAT(sentence("dirichlet:alpha=much"), HasSubstr("is not a number"));
  EXPECT_THAT(sentence("iid:index=2"),
              HasSubstr("does not say of how many parts it is number 2: add of="));
  EXPECT_THAT(sentence("iid:of=4"), HasSubstr("has 4 parts and does not say which one to hold: "
                                              "add index=, from 1 to 4"));
  EXPECT_THAT(sentence("iid:index=0,of=3"),
              HasSubstr("index = '0' is out of range; it must be 1 to 3"));
  EXPECT_THAT(sentence("iid:of=3,index=4"),
              HasSubstr("index = '4' is out of range; it must be 1 to 3"));
  EXPECT_THAT(sentence("iid:index=99999999999,of=3"), HasSubstr("out of range"));
  EXPECT_THAT(sentence("natural"), HasSubstr("write natural:column=NAME"));
  EXPECT_THAT(sentence("pathological:assign=sorted"),
              HasSubstr("is not random, first-deterministic or deterministic"));
}

TEST(PartitionSummary, ReadsAsATable) {
  const Rows rows(6, 2);
  EXPECT_EQ(to_text(summarize(rows, {{0, 1, 2, 4}, {3, 5}})),
            "  part  rows  class   0   1\n"
            "     1     4          3   1\n"
            "     2     2          0   2\n"
            "2 parts, rows a part: min 2, mean 3.0, max 4\n");
  EXPECT_THAT(to_text(summarize(rows, {{0, 1, 2, 4}, {3, 5}}), 1), HasSubstr("... 1 more parts"));
}

}  // namespace
}  // namespace starling::data

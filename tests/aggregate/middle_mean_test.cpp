// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/middle_mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/rng.h"

namespace starling::aggregate {
namespace {

using Rows = std::vector<std::vector<float>>;

update::Schema schema_of(std::size_t first, std::size_t second = 0) {
  update::Schema schema{.vectors = {{.name = "model", .elements = first}},
                        .scalars = {"train_loss"},
                        .bounds = {.contributions_max = 1000}};
  if (second > 0) schema.vectors.push_back({.name = "control", .elements = second});
  return schema;
}

Result<update::Contribution> contribution(const update::Schema& schema,
                                          const std::vector<float>& values, double weight = 1,
                                          double loss = 1) {
  const SharedBytes payload = SharedBytes::own(to_bytes(as_bytes(std::span(values))));
  return update::validate({.task = TaskId(1),
                           .weight = weight,
                           .vectors = schema.vectors,
                           .scalars = {{"train_loss", loss}},
                           .payload_bytes = payload.size(),
                           .payload_checksum = checksum(payload.view())},
                          payload, schema);
}

Result<Report> report(const JointRule& rule, const update::Schema& schema, const Rows& rows,
                      const std::vector<double>& weights = {}) {
  update::KeptUpdates updates;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const double weight = weights.empty() ? 1 : weights[k];
    updates.keep("client-" + std::to_string(k + 1),
                 contribution(schema, rows[k], weight, static_cast<double>(k)).value());
  }
  return rule.report(schema, updates);
}

void expect_near(const Means& means, const std::vector<double>& expected) {
  ASSERT_EQ(means.size(), expected.size());
  // The inputs, up to 6, are rounded to float.
  constexpr double kTolerance = 6 * std::numeric_limits<float>::epsilon();
  for (std::size_t j = 0; j < expected.size(); ++j) {
    EXPECT_NEAR(means[j], expected[j], kTolerance) << j;
  }
}

const Rows kSeven = {{1, 2, 3},         {1.3F, 1.8F, 3.1F}, {.7F, 2.4F, 2.8F}, {1.1F, 2.2F, 3.3F},
                     {.8F, 1.7F, 2.6F}, {-1, -2, -3},       {5, 4, 6}};

TEST(MiddleMean, GivesTheReferenceVectors) {
  const auto schema = schema_of(3);
  expect_near(report(MiddleMean::median(), schema, kSeven)->vectors[0], {1, 2, 3});
  expect_near(report(MiddleMean::trimmed(2), schema, kSeven)->vectors[0],
              {.966666667, 2, 2.966666667});
  expect_near(report(MiddleMean::trimmed(1), schema, kSeven)->vectors[0], {.98, 2.02, 2.96});
  expect_near(report(MiddleMean::trimmed(0), schema, kSeven)->vectors[0],
              {8.9 / 7, 12.1 / 7, 17.8 / 7});
}

TEST(MiddleMean, TheMedianOfAnEvenNumberIsTheMeanOfTheTwoInTheMiddle) {
  const auto schema = schema_of(1);
  EXPECT_EQ(report(MiddleMean::median(), schema, {{4}})->vectors[0][0], 4);
  EXPECT_EQ(report(MiddleMean::median(), schema, {{4}, {1}})->vectors[0][0], 2.5);
  EXPECT_EQ(report(MiddleMean::median(), schema, {{9}, {-7}, {2}, {1}})->vectors[0][0], 1.5);
}

TEST(MiddleMean, VectorsAreUnweightedAndScalarsAreWeightedMeans) {
  const Report found =
      report(MiddleMean::median(), schema_of(1), {{1}, {2}, {30}}, {1, 1, 1000}).value();
  EXPECT_EQ(found.vectors[0][0], 2);
  EXPECT_EQ(found.scalars.at("train_loss"), (1.0 * 1 + 1000.0 * 2) / 1002);
  EXPECT_EQ(found.weight, 1002);
  EXPECT_EQ(found.contributions, 3U);
}

TEST(MiddleMean, CombinesNumbersAsItDoesElements) {
  EXPECT_EQ(MiddleMean::median().combine({1e30, 3, 1}), 3);
  EXPECT_EQ(MiddleMean::median().combine({4, 1, 2, 1e30}), 3);
  EXPECT_EQ(MiddleMean::median().combine({7}), 7);
  EXPECT_EQ(MiddleMean::trimmed(1).combine({-1e30, 1, 1e30, 3, 2}), 2);
  EXPECT_EQ(MiddleMean::trimmed(2).combine({-1e30, 1, 1e30, 3, 2}), 2);
}

TEST(MiddleMean, TooFewUpdatesAreRefusedByName) {
  const auto schema = schema_of(1);
  const Rows four = {{1}, {2}, {3}, {4}};
  const auto refused = report(MiddleMean::trimmed(2), schema, four);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), "too-few-updates");
  EXPECT_EQ(refused.error().message(), "4 updates, and the rule needs 5");
  EXPECT_EQ(report(MiddleMean::median(), schema, {}).error().code(), "too-few-updates");
  EXPECT_EQ(MiddleMean::trimmed(2).updates_min(), 5U);
  EXPECT_EQ(MiddleMean::median().updates_min(), 1U);
}

double plain(const Rows& rows, std::size_t j, std::size_t drop) {
  std::vector<float> column;
  for (const auto& row : rows) column.push_back(row[j]);
  std::ranges::sort(column);
  const auto middle = std::span(column).subspan(drop, column.size() - 2 * drop);
  return std::accumulate(middle.begin(), middle.end(), 0.0) / static_cast<double>(middle.size());
}

// Against a plain loop, for every number of updates up to beyond two powers of two, with equal
// values among them; and over the boundaries of tiles and of vectors.
TEST(MiddleMean, AgreesWithAPlainSortWhateverTheNumberAndTheSize) {
  Rng rng({.seed = 7});
  const auto check = [&](std::size_t updates, std::size_t first, std::size_t second) {
    Rows rows(updates, std::vector<float>(first + second));
    for (auto& row : rows) {
      for (float& v : row) v = static_cast<float>(rng.below(50)) / 7 - 3;
    }
    const auto schema = schema_of(first, second);
    for (const std::size_t drop : {(updates - 1) / 4, (updates - 1) / 2}) {
      const Report found = report(MiddleMean::trimmed(drop), schema, rows).value();
      for (std::size_t j = 0; j < first + second; ++j) {
        const double got = j < first ? found.vectors[0][j] : found.vectors[1][j - first];
        ASSERT_EQ(got, plain(rows, j, drop)) << updates << " updates, element " << j;
      }
    }
    const Report median = report(MiddleMean::median(), schema, rows).value();
    ASSERT_EQ(median.vectors[0][first - 1], plain(rows, first - 1, (updates - 1) / 2));
  };
  for (std::size_t updates = 1; updates <= 35; ++updates) check(updates, 3, 2);
  const std::size_t tile = 64 * 1024 / 25;
  for (const std::size_t elements : {tile - 1, tile, tile + 1, 2 * tile + 1}) {
    check(25, elements, 5);
  }
  check(300, 256 + 7, 1);  // the smallest tile
}

TEST(MiddleMean, OneUpdateFarAwayMovesNoElementBeyondTheOthers) {
  const auto schema = schema_of(3);
  Rows rows(kSeven.begin(), kSeven.begin() + 5);
  for (const float lie : {1e6F, -1e6F}) {
    rows[0] = {lie, lie, lie};
    for (const auto& rule : {MiddleMean::median(), MiddleMean::trimmed(1)}) {
      const Report found = report(rule, schema, rows).value();
      for (std::size_t j = 0; j < 3; ++j) {
        EXPECT_GE(found.vectors[0][j], std::min({rows[1][j], rows[2][j], rows[3][j], rows[4][j]}));
        EXPECT_LE(found.vectors[0][j], std::max({rows[1][j], rows[2][j], rows[3][j], rows[4][j]}));
      }
    }
  }
}

}  // namespace
}  // namespace starling::aggregate

// SPDX-License-Identifier: Apache-2.0
#include "core/data/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/rng.h"
#include "core/data/dataset.h"
#include "core/data/row_names.h"

namespace starling::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Dataset> table(std::vector<std::string> columns, std::vector<float> values) {
  Dataset::Content content{
      .name = "csv:t.csv", .shape = {1, 1, static_cast<int>(columns.size())}, .classes = 1};
  content.labels.resize(values.size() / columns.size());
  content.features = std::move(values);
  content.feature_names = std::move(columns);
  return Dataset::make(std::move(content)).value();
}

// Four columns of scales that differ by twelve orders of magnitude.
std::vector<float> random_values(std::size_t rows) {
  Rng rng({.purpose = Purpose::kTest});
  std::vector<float> values;
  for (std::size_t i = 0; i < rows; ++i) {
    for (const double scale : {1e-6, 1.0, 1e3, 1e6}) {
      values.push_back(static_cast<float>(scale * (3 + rng.normal())));
    }
  }
  return values;
}

// By E[x^2] - E[x]^2 in long double, another way than the code's.
TEST(Scaling, StandardIsTheMeanAndThePopulationsDeviation) {
  const std::size_t rows = 1000;
  const std::vector<float> values = random_values(rows);
  const Scaling scaling = standard_scaling(*table({"a", "b", "c", "d"}, values));
  for (std::size_t c = 0; c < 4; ++c) {
    long double sum = 0;
    long double squares = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      const long double x = values[4 * i + c];
      sum += x;
      squares += x * x;
    }
    const long double mean = sum / rows;
    EXPECT_FLOAT_EQ(scaling.offsets[c], static_cast<float>(mean));
    EXPECT_FLOAT_EQ(scaling.divisors[c],
                    static_cast<float>(std::sqrt(squares / rows - mean * mean)));
  }
}

TEST(Scaling, MinmaxIsTheMinimumAndTheRange) {
  const Scaling scaling = minmax_scaling(*table({"a", "b"}, {3, -5, 1, 7, 2, 0}));
  EXPECT_THAT(scaling.offsets, ElementsAre(1.0F, -5.0F));
  EXPECT_THAT(scaling.divisors, ElementsAre(2.0F, 12.0F));
  auto rows = table({"a", "b"}, {3, -5, 1, 7, 2, 0});
  ASSERT_TRUE(fit_to(rows, {{}, {}, scaling}));
  EXPECT_THAT(rows->features(), ElementsAre(1.0F, 0.0F, 0.0F, 1.0F, 0.5F, 5.0F / 12));
}

TEST(Scaling, AColumnThatIsConstantLosesItsMeanAlone) {
  constexpr float kLarge = 123456792;
  const auto constant = table({"a", "b"}, {0.1F, kLarge, 0.1F, kLarge, 0.1F, kLarge});
  for (const Scaling& scaling : {standard_scaling(*constant), minmax_scaling(*constant)}) {
    EXPECT_THAT(scaling.offsets, ElementsAre(0.1F, kLarge));
    EXPECT_THAT(scaling.divisors, ElementsAre(1.0F, 1.0F));
    auto rows = constant;
    ASSERT_TRUE(fit_to(rows, {{}, {}, scaling}));
    EXPECT_THAT(rows->features(), ::testing::Each(0.0F));
  }
}

TEST(Scaling, TheRangeOfTheLargestNumbersStaysFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_THAT(minmax_scaling(*table({"a"}, {-kMax, kMax})).divisors, ElementsAre(kMax));
}

TEST(Scaling, IsOfTheRunsColumnsWhateverTheOrderOfTheFiles) {
  const Scaling scaling{{10, 20, 30}, {1, 2, 4}};
  const RowNames run{{"x", "y", "z"}, {}, scaling};
  auto one = table({"x", "y", "z"}, {11, 22, 34, 12, 24, 38});
  auto other = table({"z", "x", "y"}, {34, 11, 22, 38, 12, 24});
  const auto held = one;
  ASSERT_TRUE(fit_to(one, run));
  ASSERT_TRUE(fit_to(other, run));
  EXPECT_THAT(one->features(), ElementsAre(1.0F, 1.0F, 1.0F, 2.0F, 2.0F, 2.0F));
  EXPECT_THAT(other->features(), ::testing::ElementsAreArray(one->features()));
  EXPECT_EQ(held->row(0)[0], 11) << "what others hold stays";
  EXPECT_EQ(one->scaling(), scaling);
  EXPECT_TRUE(fits(*one, run).value());
  const auto* const before = one.get();
  ASSERT_TRUE(fit_to(one, run));
  EXPECT_EQ(one.get(), before) << "rows are scaled once";
}

TEST(Scaling, WhatItDoesNotFitIsRefused) {
  const Scaling scaling{{10, 20}, {1, 2}};
  const auto why = [&](std::shared_ptr<const Dataset> rows, const RowNames& names) {
    const auto fitted = fit_to(rows, names);
    return fitted ? "accepted" : fitted.error().code() + ": " + fitted.error().message();
  };
  const auto pair = table({"x", "y"}, {1, 2});
  EXPECT_EQ(why(pair, {{}, {}, scaling}), "accepted");
  EXPECT_EQ(why(table({"x"}, {1}), {{}, {}, scaling}),
            "scale-differs: the run scales 2 columns, and the data have 1");
  const auto image =
      Dataset::make(
          {.name = "idx", .shape = {1, 1, 2}, .classes = 1, .features = {0, 1}, .labels = {0}})
          .value();
  EXPECT_THAT(why(image, {{}, {}, scaling}),
              HasSubstr("scale-not-csv: the run scales the columns"));
  EXPECT_FALSE(fits(*image, {{}, {}, scaling}));
  auto scaled = pair;
  ASSERT_TRUE(fit_to(scaled, {{"x", "y"}, {}, scaling}));
  EXPECT_THAT(why(scaled, {{"x", "y"}, {}, {}}), HasSubstr("scale-differs: the rows are scaled"));
  EXPECT_THAT(why(scaled, {{"y", "x"}, {}, scaling}), HasSubstr("scale-differs"));
}

TEST(Scaling, AValueThatFloat32CannotHoldIsRefusedByItsColumnAndNotShown) {
  auto rows = table({"own", "other"}, {1, 2e9F});
  const Scaling scaling{{0, 0}, {1, 1e-30F}};
  auto fitted = fit_to(rows, {{}, {}, scaling});
  EXPECT_EQ(fitted.error().code(), "not-finite");
  EXPECT_THAT(fitted.error().message(), HasSubstr("a value in column 2 of the data"));
  rows = table({"own", "other"}, {2e9F, 1});
  fitted = fit_to(rows, {{"other", "own"}, {}, scaling});
  EXPECT_THAT(fitted.error().message(), HasSubstr("a value in column 'own' of the data"));
}

}  // namespace
}  // namespace starling::data

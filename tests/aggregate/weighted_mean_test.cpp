// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/weighted_mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/base/rng.h"

namespace starling::aggregate {
namespace {

update::Schema schema(std::uint32_t contributions_max) {
  return {.vectors = {{.name = "model", .elements = 4}, {.name = "control", .elements = 1}},
          .bounds = {.contributions_max = contributions_max}};
}

update::Contribution contribution(double weight, const std::vector<float>& values, double loss,
                                  const update::Schema& s) {
  auto owner = std::make_shared<const std::vector<float>>(values);
  const SharedBytes payload(owner, as_bytes(*owner));
  return update::validate({.task = TaskId(1),
                           .weight = weight,
                           .vectors = s.vectors,
                           .scalars = {{"train_loss", loss}},
                           .payload_bytes = payload.size(),
                           .payload_checksum = checksum(payload.view())},
                          payload, s)
      .value();
}

std::vector<double> to_vector(const Means& means) {
  return {means.values().begin(), means.values().end()};
}

TEST(WeightedMean, IsTheMeanOfVectorsAndScalars) {
  const auto s = schema(2);
  auto mean = WeightedMean::create(s, {"train_loss"}).value();
  EXPECT_FALSE(mean.can_report());
  ASSERT_TRUE(mean.accumulate(contribution(1, {1, 2, 3, 4, 10}, 1.0, s)));
  ASSERT_TRUE(mean.accumulate(contribution(3, {5, 2, -1, 0, 20}, 2.0, s)));
  const Report report = std::move(mean).report();
  EXPECT_EQ(to_vector(report.vectors[0]), (std::vector<double>{4, 2, 0, 1}));
  EXPECT_EQ(to_vector(report.vectors[1]), (std::vector<double>{17.5}));
  EXPECT_EQ(report.scalars.at("train_loss"), 1.75);
  EXPECT_EQ(report.weight, 4);
  EXPECT_EQ(report.contributions, 2U);
}

TEST(WeightedMean, OverTheRangeOfFloat32LosesNoValue) {
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  auto s = schema(3);
  s.bounds.weight_max = 1;
  const std::vector<std::vector<float>> updates = {{1e-30F, 3 * kLeast, 1e7F, 1.5F, -2e-20F},
                                                   {2e-30F, -kLeast, 0.3F, 1e-25F, 1e-20F},
                                                   {-7e-38F, kLeast, -1e7F, -1.5F, 3e-33F}};
  auto whole = WeightedMean::create(s, {}, ValueRange::kFloat32).value();
  auto merged = WeightedMean::create(s, {}, ValueRange::kFloat32).value();
  for (const auto& values : updates) {
    ASSERT_TRUE(whole.accumulate(contribution(1, values, 1, s)));
    auto part = WeightedMean::create(s, {}, ValueRange::kFloat32).value();
    ASSERT_TRUE(part.accumulate(contribution(1, values, 1, s)));
    ASSERT_TRUE(merged.merge(part.serialize()));
  }
  EXPECT_EQ(merged.serialize(), whole.serialize());
  const Report report = std::move(whole).report();
  const double least = kLeast;
  const std::vector<double> sums = {double{1e-30F} + double{2e-30F} + double{-7e-38F}, 3 * least,
                                    double{0.3F}, double{1e-25F},
                                    double{-2e-20F} + double{1e-20F} + double{3e-33F}};
  std::vector<double> means = to_vector(report.vectors[0]);
  means.push_back(report.vectors[1][0]);
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_DOUBLE_EQ(means[i], sums[i] / 3) << i;
  EXPECT_EQ(report.resolution, least) << "of float32 itself";

  auto model = WeightedMean::create(s, {}).value();
  ASSERT_TRUE(model.accumulate(contribution(1, updates[0], 1, s)));
  EXPECT_EQ(std::move(model).report().resolution, 0x1p-78);
}

TEST(WeightedMean, LooksAtNoOtherScalarsThanItsOwn) {
  const auto s = schema(2);
  auto mean = WeightedMean::create(s, {"accuracy"}).value();
  const std::size_t before = mean.serialize().size();
  ASSERT_TRUE(mean.accumulate(contribution(1, {1, 1, 1, 1, 1}, 1, s)));
  EXPECT_EQ(mean.serialize().size(), before) << "memory does not grow with the clients' words";
  auto other = WeightedMean::create(s, {"train_loss"}).value();
  EXPECT_EQ(other.merge(mean.serialize()).error().code(), "bad-aggregate");
  EXPECT_TRUE(std::move(mean).report().scalars.empty());
}

TEST(WeightedMean, RefusesMoreThanItsBound) {
  const auto s = schema(1);
  auto mean = WeightedMean::create(s, {"train_loss"}).value();
  ASSERT_TRUE(mean.accumulate(contribution(1, {1, 1, 1, 1, 1}, 1, s)));
  const Bytes before = mean.serialize();
  EXPECT_EQ(mean.accumulate(contribution(1, {1, 1, 1, 1, 1}, 1, s)).error().code(),
            "too-many-contributions");
  EXPECT_EQ(mean.merge(before).error().code(), "too-many-contributions");
  EXPECT_EQ(mean.serialize(), before) << "a refusal changes nothing";
}

TEST(WeightedMean, PartsMergeToTheSameBits) {
  Rng rng({.seed = 3});
  const auto s = schema(40);
  std::vector<update::Contribution> all;
  for (int i = 0; i < 40; ++i) {
    std::vector<float> values(5);
    for (float& value : values) value = static_cast<float>(rng.normal() * 1e3);
    all.push_back(contribution(1 + static_cast<double>(rng.below(1000)), values, rng.uniform(), s));
  }
  auto whole = WeightedMean::create(s, {"train_loss"}).value();
  for (const auto& c : all) ASSERT_TRUE(whole.accumulate(c));
  const Bytes reference = whole.serialize();
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    rng.shuffle(std::span(order));
    std::vector<WeightedMean> parts;
    for (int p = 0; p < 3; ++p) parts.push_back(WeightedMean::create(s, {"train_loss"}).value());
    for (const std::size_t i : order) ASSERT_TRUE(parts[rng.below(3)].accumulate(all[i]));
    auto merged = WeightedMean::create(s, {"train_loss"}).value();
    for (auto& part : parts) ASSERT_TRUE(merged.merge(part.serialize()));
    EXPECT_EQ(merged.serialize(), reference);
  }
}

TEST(WeightedMean, RefusesDamagedAggregatesAndStaysAsItWas) {
  const auto s = schema(4);
  auto mean = WeightedMean::create(s, {"train_loss"}).value();
  ASSERT_TRUE(mean.accumulate(contribution(2, {1, 2, 3, 4, 5}, 1, s)));
  const Bytes good = mean.serialize();
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(mean.merge(ByteView(good).first(cut))) << cut;
  }
  EXPECT_EQ(mean.serialize(), good);
}

TEST(Means, AreConsumedFromTheBeginningToTheEnd) {
  constexpr std::size_t kSize = 600'000;  // two blocks and a part of one
  PageBlock block(kSize * sizeof(double));
  for (std::size_t i = 0; i < kSize; ++i) {
    store_little(block.data() + i * sizeof(double), static_cast<double>(i + 1));
  }
  Means means(std::move(block), kSize);
  const Means copy = means;
  std::size_t next = 0;
  means.consume([&](std::size_t first, std::span<const double> values) {
    ASSERT_EQ(first, next);
    for (const double value : values) ASSERT_EQ(value, static_cast<double>(++next));
  });
  EXPECT_EQ(next, kSize);
  EXPECT_EQ(means[0], 0) << "given back";
  EXPECT_EQ(means[kSize - 1], 0) << "given back";
  EXPECT_EQ(copy[kSize - 1], static_cast<double>(kSize));
}

}  // namespace
}  // namespace starling::aggregate

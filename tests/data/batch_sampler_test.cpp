// SPDX-License-Identifier: Apache-2.0
#include "core/data/batch_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/data/load.h"

namespace starling::data {
namespace {

DatasetView view_of(std::size_t rows) {
  const auto spec = DatasetSpec::parse("synthetic:features=1,rows=" + std::to_string(rows)).value();
  return {load_dataset(spec).value()};
}
Rng rng(std::uint64_t seed = 1) { return Rng({.seed = seed, .purpose = Purpose::kBatches}); }

std::vector<std::uint32_t> take(BatchSampler& sampler, std::size_t batches) {
  std::vector<std::uint32_t> rows;
  for (std::size_t i = 0; i < batches; ++i) {
    const auto batch = sampler.next();
    rows.insert(rows.end(), batch.begin(), batch.end());
  }
  return rows;
}

TEST(BatchSampler, EveryEpochIsAPermutationAndTheLastBatchIsShort) {
  BatchSampler sampler(view_of(10), 4, rng());
  std::vector<std::vector<std::uint32_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint32_t> rows;
    for (std::size_t size : {4, 4, 2}) {
      const auto batch = sampler.next();
      EXPECT_EQ(batch.size(), size);
      rows.insert(rows.end(), batch.begin(), batch.end());
    }
    epochs.push_back(rows);
    std::ranges::sort(rows);
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(rows[i], i);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(BatchSampler, HandsOutTheDatasetsRowNumbersOfAView) {
  DatasetView view = view_of(100);
  view.rows =
      std::make_shared<const std::vector<std::uint32_t>>(std::vector<std::uint32_t>{7, 70, 77});
  BatchSampler sampler(view, 2, rng());
  std::vector<std::uint32_t> rows = take(sampler, 2);
  std::ranges::sort(rows);
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{7, 70, 77}));
}

TEST(BatchSampler, TheStreamDecidesTheOrder) {
  BatchSampler a(view_of(50), 8, rng(1));
  BatchSampler b(view_of(50), 8, rng(1));
  BatchSampler c(view_of(50), 8, rng(2));
  const auto first = take(a, 20);
  EXPECT_EQ(first, take(b, 20));
  EXPECT_NE(first, take(c, 20));
}

TEST(BatchSampler, DropLeavesTheRestOut) {
  BatchSampler sampler(view_of(10), 4, rng(), LastBatch::kDrop);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(sampler.next().size(), 4U);
}

TEST(BatchSampler, DropKeepsAnEpochShorterThanABatch) {
  BatchSampler sampler(view_of(3), 4, rng(), LastBatch::kDrop);
  EXPECT_EQ(sampler.next().size(), 3U);
}

TEST(BatchSampler, WrapFillsEveryBatchAndUsesRowsEqually) {
  for (std::size_t batch_size : {4, 10, 32}) {
    BatchSampler sampler(view_of(10), batch_size, rng(), LastBatch::kWrap);
    std::map<std::uint32_t, int> uses;
    for (std::uint32_t row : take(sampler, 10)) ++uses[row];
    ASSERT_EQ(uses.size(), 10U);
    for (const auto& [row, count] : uses) EXPECT_EQ(count, static_cast<int>(batch_size));
  }
}

// All 4! = 24 orders of an epoch equally often: chi-squared with 23 degrees of freedom, p > 1e-6.
TEST(BatchSampler, OrdersAreUniform) {
  BatchSampler sampler(view_of(4), 4, rng());
  std::map<std::vector<std::uint32_t>, int> counts;
  constexpr int kEpochs = 24'000;
  for (int i = 0; i < kEpochs; ++i) ++counts[take(sampler, 1)];
  ASSERT_EQ(counts.size(), 24U);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) {
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  }
  EXPECT_LT(chi_squared, 73);
}

}  // namespace
}  // namespace starling::data

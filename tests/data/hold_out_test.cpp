// SPDX-License-Identifier: Apache-2.0
#include "core/data/hold_out.h"

#include <gtest/gtest.h>

#include <set>

#include "core/data/load.h"
#include "core/data/partition.h"

namespace starling::data {
namespace {

std::shared_ptr<const Dataset> rows(int count) {
  const auto spec =
      DatasetSpec::parse("synthetic:rows=" + std::to_string(count) + ",features=3,classes=2");
  return load_dataset(spec.value()).value();
}

std::set<std::uint32_t> rows_in(const DatasetView& view) {
  std::set<std::uint32_t> found;
  for (std::size_t i = 0; i < view.size(); ++i) found.insert(view.row(i));
  return found;
}

TEST(HoldOut, DividesEveryRowOnce) {
  const DatasetView all{rows(103)};
  const Divided divided = hold_out(all, 0.2);
  ASSERT_TRUE(divided.held_out);
  EXPECT_EQ(divided.held_out->size(), 20U);
  EXPECT_EQ(divided.training.size(), 83U);
  std::set<std::uint32_t> both = rows_in(divided.training);
  both.merge(rows_in(*divided.held_out));
  EXPECT_EQ(both.size(), 103U);
}

TEST(HoldOut, LessThanARowIsNone) {
  const DatasetView all{rows(9)};
  EXPECT_FALSE(hold_out(all, 0).held_out);
  EXPECT_FALSE(hold_out(all, 0.1).held_out);
  EXPECT_EQ(hold_out(all, 0.1).training.size(), 9U);
  EXPECT_EQ(hold_out(all, 0.9).training.size(), 1U);
}

// A device holds its part as a data set of its own, a simulation as rows of the whole.
TEST(HoldOut, DependsOnPositionsAlone) {
  const auto whole = rows(50);
  const DatasetView part{whole, std::make_shared<const std::vector<std::uint32_t>>(
                                    std::vector<std::uint32_t>{7, 3, 41, 12, 30, 8, 9, 2, 1, 49})};
  const Divided divided = hold_out(part, 0.3);
  const Divided alone = hold_out(DatasetView{rows(10)}, 0.3);
  ASSERT_EQ(divided.held_out->size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(divided.held_out->row(i), part.row(alone.held_out->row(i)));
  }
}

TEST(HoldOut, PooledIsWhatAllViewsHoldInTheOrderOfTheWhole) {
  const auto whole = rows(10);
  const auto view = [&](std::vector<std::uint32_t> chosen) {
    return DatasetView{whole, std::make_shared<const std::vector<std::uint32_t>>(chosen)};
  };
  const auto both = pooled({view({7, 3}), view({4})});
  ASSERT_TRUE(both);
  EXPECT_EQ(*both->rows, (std::vector<std::uint32_t>{3, 4, 7}));
  EXPECT_EQ(both->dataset, whole);
  EXPECT_FALSE(pooled({}));
}

}  // namespace
}  // namespace starling::data

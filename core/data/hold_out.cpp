// SPDX-License-Identifier: Apache-2.0
#include "core/data/hold_out.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace starling::data {
namespace {

DatasetView rows_of(const DatasetView& view, std::vector<std::uint32_t> positions) {
  std::ranges::sort(positions);
  for (std::uint32_t& position : positions) position = view.row(position);
  return {view.dataset, std::make_shared<const std::vector<std::uint32_t>>(std::move(positions))};
}

}  // namespace

Divided hold_out(const DatasetView& view, double fraction) {
  STARLING_CHECK(fraction >= 0 && fraction < 1);
  const auto count =
      static_cast<std::size_t>(std::floor(static_cast<double>(view.size()) * fraction));
  if (count == 0) return {view, std::nullopt};
  std::vector<std::uint32_t> positions(view.size());
  std::iota(positions.begin(), positions.end(), 0U);
  Rng rng({.seed = 1, .purpose = Purpose::kHoldOut});
  rng.shuffle(std::span(positions));
  const auto middle = positions.begin() + static_cast<std::ptrdiff_t>(count);
  return {rows_of(view, {middle, positions.end()}), rows_of(view, {positions.begin(), middle})};
}

std::optional<DatasetView> pooled(const std::vector<DatasetView>& views) {
  std::vector<std::uint32_t> rows;
  for (const DatasetView& view : views) {
    for (std::size_t i = 0; i < view.size(); ++i) rows.push_back(view.row(i));
  }
  if (rows.empty()) return std::nullopt;
  std::ranges::sort(rows);
  return DatasetView{views.front().dataset,
                     std::make_shared<const std::vector<std::uint32_t>>(std::move(rows))};
}

}  // namespace starling::data

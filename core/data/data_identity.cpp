// SPDX-License-Identifier: Apache-2.0
#include "core/data/data_identity.h"

#include <fmt/format.h>

#include <vector>

namespace starling::data {
namespace {

template <class T>
std::uint64_t sum_of(std::span<const T> values) {
  return checksum(std::as_bytes(values));
}

}  // namespace

void add_dataset(Sha256& identity, const DatasetView& view) {
  if (view.dataset == nullptr) return;
  identity.update(as_bytes(fmt::format("data {:x} {:x}\n", sum_of(view.dataset->features()),
                                       sum_of(view.dataset->labels()))));
}

void add_rows(Sha256& identity, const DatasetView& view) {
  if (view.dataset == nullptr) return;
  std::vector<std::uint32_t> rows(view.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = view.row(i);
  identity.update(as_bytes(fmt::format("rows {:x}\n", sum_of<std::uint32_t>(rows))));
}

}  // namespace starling::data

// SPDX-License-Identifier: Apache-2.0
// Rows of a dataset gathered into one contiguous batch.
#pragma once

#include <span>
#include <vector>

#include "core/data/dataset.h"
#include "core/linalg/aligned.h"
#include "core/linalg/kernels.h"
#include "core/model/model.h"

namespace starling::train {

// Whether `view` has rows, of the shape and classes that `model` was made for: "no-data",
// "data-mismatch".
[[nodiscard]] Result<void> check_data(const model::Model& model, const data::DatasetView& view);

class RowBlock {
 public:
  // Room for `rows` rows of `features` values.
  void reserve(std::size_t rows, std::size_t features);
  // Valid until the next call. Requires: no more rows than reserved.
  model::Batch gather(const data::Dataset& dataset, std::span<const std::uint32_t> rows);

 private:
  void gather_bytes(const data::Dataset& dataset, std::span<const std::uint32_t> rows);
  void gather_floats(const data::Dataset& dataset, std::span<const std::uint32_t> rows);

  const linalg::Kernels& kernels_ = linalg::default_kernels();
  linalg::AlignedVector<float> features_;
  std::vector<std::int32_t> labels_;
};

}  // namespace starling::train

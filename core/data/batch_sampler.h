// SPDX-License-Identifier: Apache-2.0
// Batches of row numbers over a view: every epoch in a fresh order, drawn from a stream of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/archive.h"
#include "core/base/rng.h"
#include "core/data/dataset.h"

namespace starling::data {

// When the rows of an epoch are not a multiple of the batch size.
enum class LastBatch {
  kKeep,  // the last batch is short
  kDrop,  // its rows are left out of this epoch (an epoch shorter than one batch keeps it)
  kWrap,  // it is filled up with the first rows of the next epoch: every batch is full
};

class BatchSampler {
 public:
  // Requires: view.size() > 0, batch_size > 0. The view is only read here.
  BatchSampler(const DatasetView& view, std::size_t batch_size, Rng rng,
               LastBatch last = LastBatch::kKeep);

  // Row numbers in view.dataset, valid until the next call. Does not allocate.
  std::span<const std::uint32_t> next();

  // Where it stands; read into one that was made of the same view.
  void archive(Archive& state);

 private:
  void begin_epoch();

  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> wrapped_;  // kWrap: a batch across two epochs
  std::size_t batch_size_;
  LastBatch last_;
  std::size_t position_;
  Rng rng_;
};

}  // namespace starling::data

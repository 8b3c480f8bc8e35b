// SPDX-License-Identifier: Apache-2.0
#include "core/data/batch_sampler.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::data {

BatchSampler::BatchSampler(const DatasetView& view, std::size_t batch_size, Rng rng, LastBatch last)
    : batch_size_(batch_size), last_(last), rng_(rng) {
  const std::size_t rows = view.size();
  STARLING_CHECK(rows > 0 && batch_size > 0);
  order_.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) order_[i] = view.row(i);
  if (last_ == LastBatch::kWrap) wrapped_.resize(batch_size);
  if (last_ == LastBatch::kDrop && rows < batch_size) last_ = LastBatch::kKeep;
  position_ = rows;
}

void BatchSampler::begin_epoch() {
  rng_.shuffle(std::span(order_));
  position_ = 0;
}

std::span<const std::uint32_t> BatchSampler::next() {
  const std::size_t rest = order_.size() - position_;
  if (rest == 0 || (last_ == LastBatch::kDrop && rest < batch_size_)) begin_epoch();
  const std::size_t ready = std::min(batch_size_, order_.size() - position_);
  if (ready == batch_size_ || last_ != LastBatch::kWrap) {
    const auto batch = std::span(order_).subspan(position_, ready);
    position_ += ready;
    return batch;
  }
  for (std::uint32_t& row : wrapped_) {
    if (position_ == order_.size()) begin_epoch();
    row = order_[position_++];
  }
  return wrapped_;
}

// What is read must be an order of the same rows.
void BatchSampler::archive(Archive& state) {
  std::vector<std::uint32_t> rows;
  if (state.reading()) rows = order_;
  state.elements(std::span(order_));
  state(position_);
  rng_.archive(state);
  if (!state.reading()) return;
  std::vector<std::uint32_t> read = order_;
  std::ranges::sort(rows);
  std::ranges::sort(read);
  state.expect(read == rows && position_ <= order_.size());
}

}  // namespace starling::data

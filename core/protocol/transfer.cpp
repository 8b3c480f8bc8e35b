// SPDX-License-Identifier: Apache-2.0
#include "core/protocol/transfer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"

namespace starling::protocol {

TransferSender::TransferSender(SharedBytes data, std::uint64_t chunk_bytes_max)
    : data_(std::move(data)), chunk_bytes_max_(chunk_bytes_max) {
  STARLING_CHECK(chunk_bytes_max > 0);
}

Result<void> TransferSender::start(std::uint64_t offset, std::uint64_t limit) {
  if (offset > data_.size()) {
    return rejected("bad-offset",
                    fmt::format("asked for bytes from {} of {}", offset, data_.size()));
  }
  offset_ = offset;
  limit_ = std::clamp<std::uint64_t>(limit, offset, data_.size());
  return {};
}

void TransferSender::extend(std::uint64_t limit) {
  limit_ = std::max(limit_, std::min<std::uint64_t>(limit, data_.size()));
}

std::optional<TransferSender::Piece> TransferSender::next() {
  if (offset_ >= limit_) return std::nullopt;
  const std::uint64_t count = std::min(chunk_bytes_max_, limit_ - offset_);
  Piece piece{offset_,
              data_.slice(static_cast<std::size_t>(offset_), static_cast<std::size_t>(count))};
  offset_ += count;
  return piece;
}

TransferReceiver::TransferReceiver(std::uint64_t total, std::uint64_t window_bytes)
    : total_(total), window_bytes_(window_bytes), told_limit_(std::min(total, window_bytes)) {
  STARLING_CHECK(window_bytes > 0);
}

std::uint64_t TransferReceiver::limit() const {
  return received_ + std::min(window_bytes_, total_ - received_);
}

Result<bool> TransferReceiver::take(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > received_ || bytes > told_limit_ || offset > told_limit_ - bytes) {
    return rejected("bad-chunk", fmt::format("bytes {}+{} came where {} of {} had arrived", offset,
                                             bytes, received_, total_));
  }
  if (offset < received_) {
    if (offset + bytes <= received_) return false;
    return rejected("bad-chunk", fmt::format("bytes {}+{} overlap the {} that had arrived", offset,
                                             bytes, received_));
  }
  received_ += bytes;
  return true;
}

std::uint64_t TransferReceiver::tell_limit() { return told_limit_ = limit(); }

std::optional<std::uint64_t> TransferReceiver::credit_due() {
  const bool worth_telling = limit() == total_ || limit() >= told_limit_ + window_bytes_ / 2;
  if (told_limit_ == total_ || !worth_telling) return std::nullopt;
  return tell_limit();
}

Result<void> ModelAssembler::take(std::uint64_t offset, const SharedBytes& piece) {
  STARLING_ASSIGN(const bool fresh, receiver_.take(offset, piece.size()));
  if (!fresh || piece.empty()) return {};
  const bool aligned = reinterpret_cast<std::uintptr_t>(piece.view().data()) % alignof(float) == 0;
  if (offset == 0 && piece.size() == receiver_.total() && piece.owner() && aligned) {
    whole_ = piece;
    return {};
  }
  if (!memory_) memory_ = std::make_shared<PageBlock>(receiver_.total(), PageBlock::Pages::kLarge);
  std::memcpy(memory_->data() + offset, piece.view().data(), piece.size());
  return {};
}

SharedBytes ModelAssembler::finish() && {
  STARLING_CHECK(receiver_.done());
  if (!memory_) return std::move(whole_);
  const ByteView view(memory_->data(), static_cast<std::size_t>(receiver_.total()));
  return {std::move(memory_), view};
}

}  // namespace starling::protocol

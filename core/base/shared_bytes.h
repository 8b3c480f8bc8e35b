// SPDX-License-Identifier: Apache-2.0
// Immutable bytes and whatever keeps them alive: a model snapshot, a pooled buffer, a received
// frame. In one process "sending" a model hands this over and copies nothing.
#pragma once

#include <memory>
#include <utility>

#include "core/base/bytes.h"

namespace starling {

class SharedBytes {
 public:
  SharedBytes() = default;
  SharedBytes(std::shared_ptr<const void> owner, ByteView view)
      : owner_(std::move(owner)), view_(view) {}

  static SharedBytes own(Bytes bytes) {
    auto owner = std::make_shared<const Bytes>(std::move(bytes));
    const ByteView view = *owner;
    return {std::move(owner), view};
  }

  // Bytes that whoever hands them out keeps mapped from a file, read-only and shared.
  static SharedBytes mapped(ByteView view) {
    SharedBytes bytes(nullptr, view);
    bytes.mapped_ = true;
    return bytes;
  }

  ByteView view() const { return view_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  // Requires: offset + count <= size().
  SharedBytes slice(std::size_t offset, std::size_t count) const {
    SharedBytes part(owner_, view_.subspan(offset, count));
    part.mapped_ = mapped_;
    return part;
  }
  // [offset, offset + count) was read and is not needed soon: pages mapped from a file leave this
  // process's memory, to be mapped again when they are read again. Requires: as for slice().
  void leave(std::size_t offset, std::size_t count) const;

 private:
  std::shared_ptr<const void> owner_;
  ByteView view_;
  bool mapped_ = false;
};

}  // namespace starling

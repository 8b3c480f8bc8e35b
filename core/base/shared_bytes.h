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

  ByteView view() const { return view_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  // Requires: offset + count <= size().
  SharedBytes slice(std::size_t offset, std::size_t count) const {
    return {owner_, view_.subspan(offset, count)};
  }

 private:
  std::shared_ptr<const void> owner_;
  ByteView view_;
};

}  // namespace starling

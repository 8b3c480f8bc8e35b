// SPDX-License-Identifier: Apache-2.0
// A model is one flat vector of floats plus a layout that names its tensors. Aggregation, mixing,
// transport and storage see the vector; only models and files look at the names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/linalg/aligned.h"

namespace starling::model {

enum class Role {
  kTrainable,  // what optimizers change
  kBuffer,     // state that travels but is not trained (running means)
  kPrivate,    // stays with the client
};

// What a buffer is after a round, of what it is at the clients that count.
enum class BufferRule {
  kMean,     // weighted as their updates are
  kMaximum,  // of each element the largest
  kLast,     // as it is at the last client in order of name
};

struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> shape;  // row-major; empty: a scalar
  std::size_t offset = 0;           // of the first element in the flat vector, in floats
  Role role = Role::kTrainable;
  BufferRule rule = BufferRule::kMean;  // of buffers

  std::size_t size() const;  // the number of elements
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// The tensors of a model in order, without gaps. Immutable.
class Layout {
 public:
  // More elements than this are refused: 2^40 floats, beyond any machine, far from overflow.
  static constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 40;

  // Offsets are computed; those given are ignored. Refuses empty or repeated names, negative
  // dimensions and overflowing sizes ("bad-layout").
  [[nodiscard]] static Result<std::shared_ptr<const Layout>> make(std::vector<TensorInfo> tensors);

  std::size_t size() const { return size_; }  // of the flat vector, in floats
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;  // nullptr: no such tensor

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  Layout() = default;

  std::vector<TensorInfo> tensors_;
  std::size_t size_ = 0;
};

// The values of a model: contiguous floats that begin on a cache line. A value: copies copy.
class Parameters {
 public:
  // All zero. Requires: layout is not null.
  explicit Parameters(std::shared_ptr<const Layout> layout);
  // Requires: layout is not null; as many values as it has.
  Parameters(std::shared_ptr<const Layout> layout, linalg::AlignedVector<float> values);

  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  std::size_t size() const { return values_.size(); }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  std::span<float> values(const TensorInfo& tensor);
  std::span<const float> values(const TensorInfo& tensor) const;

  // Over the float32 little-endian values in layout order.
  Sha256Digest sha256() const;

  // Same layout and the same bits.
  friend bool operator==(const Parameters& a, const Parameters& b);

 private:
  std::shared_ptr<const Layout> layout_;
  linalg::AlignedVector<float> values_;
};

// Models are shared, not copied, within a process.
using Snapshot = std::shared_ptr<const Parameters>;

}  // namespace starling::model

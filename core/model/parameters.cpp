// SPDX-License-Identifier: Apache-2.0
#include "core/model/parameters.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/check.h"

namespace starling::model {
namespace {

Error bad_layout(const std::string& name, const std::string& why) {
  return rejected("bad-layout", "tensor \"" + name + "\" " + why);
}

// The number of elements, or nothing where it exceeds the limit or a dimension is negative.
std::optional<std::uint64_t> checked_size(const std::vector<std::int64_t>& shape) {
  std::uint64_t size = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || extent > static_cast<std::int64_t>(Layout::kElementsMax)) return {};
    if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size)) return {};
  }
  if (size > Layout::kElementsMax) return {};
  return size;
}

}  // namespace

std::size_t TensorInfo::size() const {
  std::size_t product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

Result<std::shared_ptr<const Layout>> Layout::make(std::vector<TensorInfo> tensors) {
  std::uint64_t offset = 0;
  std::set<std::string_view> names;
  for (TensorInfo& tensor : tensors) {
    if (tensor.name.empty()) return rejected("bad-layout", "a tensor has no name");
    if (!names.insert(tensor.name).second) return bad_layout(tensor.name, "occurs twice");
    const auto size = checked_size(tensor.shape);
    if (!size) return bad_layout(tensor.name, "has an impossible shape");
    tensor.offset = offset;
    offset += *size;
    if (offset > kElementsMax) return bad_layout(tensor.name, "makes the model too large");
  }
  auto layout = std::shared_ptr<Layout>(new Layout);
  layout->tensors_ = std::move(tensors);
  layout->size_ = offset;
  return std::shared_ptr<const Layout>(std::move(layout));
}

const TensorInfo* Layout::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorInfo::name);
  return found == tensors_.end() ? nullptr : &*found;
}

Parameters::Parameters(std::shared_ptr<const Layout> layout) : layout_(std::move(layout)) {
  STARLING_CHECK(layout_ != nullptr);
  values_.resize(layout_->size());
}

Parameters::Parameters(std::shared_ptr<const Layout> layout, linalg::AlignedVector<float> values)
    : layout_(std::move(layout)), values_(std::move(values)) {
  STARLING_CHECK(layout_ != nullptr && values_.size() == layout_->size());
}

std::span<float> Parameters::values(const TensorInfo& tensor) {
  return values().subspan(tensor.offset, tensor.size());
}

std::span<const float> Parameters::values(const TensorInfo& tensor) const {
  return values().subspan(tensor.offset, tensor.size());
}

Sha256Digest Parameters::sha256() const { return starling::sha256(as_bytes(values())); }

bool operator==(const Parameters& a, const Parameters& b) {
  return *a.layout_ == *b.layout_ &&
         (a.size() == 0 ||
          std::memcmp(a.values_.data(), b.values_.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace starling::model

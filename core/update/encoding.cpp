// SPDX-License-Identifier: Apache-2.0
#include "core/update/encoding.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/update/sparse.h"

namespace starling::update {

bool is_known(Encoding encoding) {
  return encoding >= Encoding::kFloat32Delta && encoding <= Encoding::kSparseFloat32;
}

bool is_sparse(Encoding encoding) { return encoding != dense_of(encoding); }

Encoding dense_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFloat32Delta:
    case Encoding::kSparseFloat32Delta:
      return Encoding::kFloat32Delta;
    case Encoding::kFloat32:
    case Encoding::kSparseFloat32:
      return Encoding::kFloat32;
  }
  STARLING_CHECK(false);  // not of the list
}

Encoding sparse_of(Encoding encoding) {
  return dense_of(encoding) == Encoding::kFloat32Delta ? Encoding::kSparseFloat32Delta
                                                       : Encoding::kSparseFloat32;
}

bool answers(std::span<const VectorSpec> vectors, std::span<const VectorSpec> asked) {
  return std::ranges::equal(vectors, asked, [](const VectorSpec& vector, const VectorSpec& wanted) {
    return vector.name == wanted.name && vector.elements == wanted.elements &&
           is_known(vector.encoding) && is_known(wanted.encoding) &&
           (vector.encoding == wanted.encoding || vector.encoding == dense_of(wanted.encoding));
  });
}

std::uint64_t encoded_bytes(const VectorSpec& vector) {
  return is_sparse(vector.encoding) ? vector.bytes : vector.elements * sizeof(float);
}

std::uint64_t encoded_bytes_max(const VectorSpec& asked) {
  STARLING_CHECK(is_known(asked.encoding));
  return asked.elements * sizeof(float);
}

std::uint64_t payload_bytes(std::span<const VectorSpec> vectors) {
  std::uint64_t bytes = 0;
  for (const VectorSpec& vector : vectors) bytes += encoded_bytes(vector);
  return bytes;
}

std::uint64_t payload_bytes_max(std::span<const VectorSpec> asked) {
  std::uint64_t bytes = 0;
  for (const VectorSpec& vector : asked) bytes += encoded_bytes_max(vector);
  return bytes;
}

std::vector<VectorSpec> encode(std::span<float> values, std::span<const VectorSpec> asked) {
  STARLING_CHECK(values.size_bytes() == payload_bytes_max(asked));
  std::vector<VectorSpec> vectors(asked.begin(), asked.end());
  auto* to = reinterpret_cast<std::byte*>(values.data());
  std::size_t first = 0;
  for (VectorSpec& vector : vectors) {
    const std::span<float> dense = values.subspan(first, static_cast<std::size_t>(vector.elements));
    first += dense.size();
    vector.bytes = 0;
    if (is_sparse(vector.encoding)) {
      const std::uint64_t stored = count_stored(dense);
      const std::uint64_t bytes = sparse_bytes(dense.size(), stored);
      if (bytes < dense.size_bytes()) {
        make_sparse(dense, stored);
        vector.bytes = bytes;
      } else {
        vector.encoding = dense_of(vector.encoding);
      }
    }
    const auto bytes = static_cast<std::size_t>(encoded_bytes(vector));
    if (reinterpret_cast<std::byte*>(dense.data()) != to) std::memmove(to, dense.data(), bytes);
    to += bytes;
  }
  return vectors;
}

}  // namespace starling::update

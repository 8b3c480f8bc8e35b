// SPDX-License-Identifier: Apache-2.0
// How the values of a vector travel, and how many bytes that takes. A sparse encoding leaves out
// the elements that are zero (sparse.h), so its length depends on the values: a task that asks for
// one is answered in it, or in its dense form where that is not longer. The decoded values are the
// same bits either way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::update {

enum class Encoding : std::uint16_t {
  kFloat32Delta = 1,        // little-endian float32: local - base
  kFloat32 = 2,             // little-endian float32: the values themselves
  kSparseFloat32Delta = 3,  // the sparse form of kFloat32Delta
  kSparseFloat32 = 4,       // the sparse form of kFloat32
};

// Of what a peer sends, before anything else is believed of it.
bool is_known(Encoding encoding);

// These require: is_known(encoding).
bool is_sparse(Encoding encoding);
Encoding dense_of(Encoding encoding);
Encoding sparse_of(Encoding encoding);

// A vector as a task asks for it, or as a contribution brings it.
struct VectorSpec {
  std::string name;
  Encoding encoding = Encoding::kFloat32Delta;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;  // of a contribution's sparse vector; else 0: the encoding says it
  friend bool operator==(const VectorSpec&, const VectorSpec&) = default;
};

// Whether a contribution's vectors are those that were asked for, each in the encoding that was
// asked for or in its dense form. Does not look at `bytes`.
bool answers(std::span<const VectorSpec> vectors, std::span<const VectorSpec> asked);

// Bytes of a contribution's vector as it travels. Requires: is_known(encoding).
std::uint64_t encoded_bytes(const VectorSpec& vector);
// The most that an answer to this vector of a task takes: its dense form. Requires:
// is_known(encoding).
std::uint64_t encoded_bytes_max(const VectorSpec& asked);

// Of vectors laid one after the other.
std::uint64_t payload_bytes(std::span<const VectorSpec> vectors);
std::uint64_t payload_bytes_max(std::span<const VectorSpec> asked);

// Encodes in place the dense vectors that `values` holds one after the other: each one that is
// asked for sparse becomes so where that is shorter. Returns the vectors as a contribution brings
// them; their payload is the first payload_bytes() of `values`. Where no vector is asked for
// sparse, nothing is looked at; where none becomes sparse, nothing is moved. Requires: `values` has
// payload_bytes_max(asked).
std::vector<VectorSpec> encode(std::span<float> values, std::span<const VectorSpec> asked);

}  // namespace starling::update

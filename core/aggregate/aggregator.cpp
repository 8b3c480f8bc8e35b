// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/aggregator.h"

#include <cstring>

namespace starling::aggregate {

namespace {

PageBlock copy_of(std::span<const double> values) {
  PageBlock block(values.size_bytes());
  if (!values.empty()) std::memcpy(block.data(), values.data(), values.size_bytes());
  return block;
}

}  // namespace

Means::Means(std::span<const double> values)
    : memory_(copy_of({values.begin(), values.size()})), size_(values.size()) {}

Means::Means(const Means& other) : memory_(copy_of(other.values())), size_(other.size_) {}

}  // namespace starling::aggregate

// SPDX-License-Identifier: Apache-2.0
#include "core/update/contribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace starling::update {
namespace {

// The largest magnitude as an integer comparison: the bits of |x| grow with |x|, and infinity and
// NaN lie above every finite value, so one branch-free pass finds both faults.
std::int32_t largest_magnitude_bits(std::span<const float> values) {
  std::int32_t largest = 0;  // signed: SSE2 compares no other 32-bit integers
  for (float value : values) {
    largest = std::max(largest, std::bit_cast<std::int32_t>(value) & 0x7FFFFFFF);
  }
  return largest;
}

Result<void> check_values(std::span<const float> values, const VectorSpec& spec, double value_max) {
  const float largest = std::bit_cast<float>(largest_magnitude_bits(values));
  if (!std::isfinite(largest)) {
    return rejected("not-finite", fmt::format("vector '{}' has an infinite or undefined element; "
                                              "a smaller learning rate usually helps",
                                              spec.name));
  }
  if (largest > value_max) {
    return rejected("value-out-of-range",
                    fmt::format("vector '{}' has an element of magnitude {:g}; this round sums "
                                "values up to {:g} (use a smaller learning rate or scale the "
                                "features)",
                                spec.name, largest, value_max));
  }
  return {};
}

}  // namespace

bool is_known(Encoding encoding) {
  return encoding == Encoding::kFloat32Delta || encoding == Encoding::kFloat32;
}

std::uint64_t encoded_bytes(const VectorSpec& vector) {
  switch (vector.encoding) {
    case Encoding::kFloat32Delta:
    case Encoding::kFloat32:
      return vector.elements * sizeof(float);
  }
  STARLING_CHECK(false);  // not of the list
}

std::uint64_t payload_bytes(std::span<const VectorSpec> vectors) {
  std::uint64_t bytes = 0;
  for (const VectorSpec& vector : vectors) bytes += encoded_bytes(vector);
  return bytes;
}

std::span<const float> Contribution::vector(std::size_t i) const {
  STARLING_CHECK(i < head_.vectors.size());
  const std::uint64_t offset = payload_bytes(std::span(head_.vectors).first(i));
  const auto* values = reinterpret_cast<const float*>(payload_.view().data() + offset);
  return {values, static_cast<std::size_t>(head_.vectors[i].elements)};
}

Result<void> validate_head(const ContributionHead& head, const Schema& schema) {
  if (head.vectors != schema.vectors) {
    return rejected("wrong-vectors",
                    fmt::format("the update's vectors (names, encodings or sizes) are not those "
                                "that task {} asked for",
                                head.task.value()));
  }
  if (head.payload_bytes != payload_bytes(schema.vectors)) {
    return rejected("wrong-size", fmt::format("the update announces {} bytes; task {} needs {}",
                                              head.payload_bytes, head.task.value(),
                                              payload_bytes(schema.vectors)));
  }
  if (!std::isfinite(head.weight) || head.weight <= 0) {
    return rejected("bad-weight",
                    fmt::format("the update's weight is {}; it must be positive", head.weight));
  }
  if (head.weight > schema.bounds.weight_max) {
    return rejected("weight-out-of-range",
                    fmt::format("the update's weight {:g} exceeds this round's limit {:g}",
                                head.weight, schema.bounds.weight_max));
  }
  if (head.scalars.size() > kScalarsMax) {
    return rejected("bad-scalars", fmt::format("the update has {} scalars; at most {} are taken",
                                               head.scalars.size(), kScalarsMax));
  }
  for (const auto& [name, value] : head.scalars) {
    if (name.empty() || name.size() > kNameBytesMax || !(std::abs(value) <= kScalarMax)) {
      return rejected("bad-scalars",
                      fmt::format("a scalar of the update has no proper name, or its magnitude is "
                                  "not below {:g}",
                                  kScalarMax));
    }
  }
  for (const std::string& name : schema.scalars) {
    if (head.scalars.contains(name)) continue;
    return rejected("missing-scalar",
                    fmt::format("the update has no scalar '{}', which task {} asked for", name,
                                head.task.value()));
  }
  return {};
}

Result<Contribution> validate(ContributionHead head, SharedBytes payload, const Schema& schema) {
  STARLING_TRY(validate_head(head, schema));
  if (payload.size() != head.payload_bytes) {
    return rejected("wrong-size", fmt::format("the update has {} bytes instead of {}",
                                              payload.size(), head.payload_bytes));
  }
  STARLING_CHECK(reinterpret_cast<std::uintptr_t>(payload.view().data()) % alignof(float) == 0);
  if (checksum(payload.view()) != head.payload_checksum) {
    return rejected("checksum-mismatch", "the update was damaged on its way");
  }
  Contribution contribution(std::move(head), std::move(payload));
  for (std::size_t i = 0; i < schema.vectors.size(); ++i) {
    STARLING_TRY(check_values(contribution.vector(i), schema.vectors[i], schema.bounds.value_max));
  }
  return contribution;
}

}  // namespace starling::update

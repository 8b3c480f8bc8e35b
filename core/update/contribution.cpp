// SPDX-License-Identifier: Apache-2.0
#include "core/update/contribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/linalg/kernels.h"

namespace starling::update {
namespace {

// What a pass reads at a time: small enough to stay in the second cache for the next step.
constexpr std::size_t kBlock = 64 * 1024;

struct Reading {
  std::uint64_t checksum = 0;
  std::vector<float> largest;  // magnitude of each vector; not finite where an element is not
  double squares = 0;          // the sum of all
};

// One pass over the payload.
Result<Reading> read(const Contribution& contribution) {
  const linalg::Kernels& kernels = linalg::default_kernels();
  Checksum hash;
  Reading reading;
  for (std::size_t i = 0; i < contribution.head().vectors.size(); ++i) {
    std::int32_t largest = 0;
    std::array<double, 8> sum{};
    STARLING_TRY(
        contribution.for_each_block(i, kBlock, [&](std::size_t, std::span<const float> values) {
          hash.update(as_bytes(values));
          largest = std::max(largest, kernels.largest_magnitude_bits(values.data(), values.size()));
          kernels.add_squares(sum.data(), values.data(), values.size());
        }));
    reading.largest.push_back(std::bit_cast<float>(largest));
    reading.squares +=
        ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  }
  reading.checksum = hash.value();
  return reading;
}

Result<void> check_values(float largest, const VectorSpec& spec, double value_max) {
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

std::uint64_t Contribution::offset_of(std::size_t i) const {
  STARLING_CHECK(i < head_.vectors.size());
  return payload_bytes(std::span(head_.vectors).first(i));
}

std::span<const float> Contribution::vector(std::size_t i) const {
  STARLING_CHECK(payload_.in_memory() != nullptr);
  const std::byte* const bytes = payload_.in_memory()->view().data() + offset_of(i);
  return {reinterpret_cast<const float*>(bytes),
          static_cast<std::size_t>(head_.vectors[i].elements)};
}

Result<void> Contribution::read(std::size_t i, std::size_t first, std::span<float> out) const {
  const std::uint64_t offset = offset_of(i) + first * sizeof(float);
  const auto done = payload_.read(offset, std::as_writable_bytes(out));
  if (done) return {};
  return retry("upload-unreadable", fmt::format("the update that was received cannot be read: {}",
                                                done.error().message()));
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

Result<Contribution> validate(ContributionHead head, Payload payload, const Schema& schema) {
  STARLING_TRY(validate_head(head, schema));
  if (payload.size() != head.payload_bytes) {
    return rejected("wrong-size", fmt::format("the update has {} bytes instead of {}",
                                              payload.size(), head.payload_bytes));
  }
  if (const SharedBytes* const bytes = payload.in_memory()) {
    STARLING_CHECK(reinterpret_cast<std::uintptr_t>(bytes->view().data()) % alignof(float) == 0);
  }
  Contribution contribution(std::move(head), std::move(payload));
  STARLING_ASSIGN(const Reading reading, read(contribution));
  if (reading.checksum != contribution.head().payload_checksum) {
    return rejected("checksum-mismatch", "the update was damaged on its way");
  }
  for (std::size_t i = 0; i < schema.vectors.size(); ++i) {
    STARLING_TRY(check_values(reading.largest[i], schema.vectors[i], schema.bounds.value_max));
  }
  contribution.norm_ = std::sqrt(reading.squares);
  return contribution;
}

}  // namespace starling::update

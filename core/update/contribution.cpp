// SPDX-License-Identifier: Apache-2.0
#include "core/update/contribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/check.h"
#include "core/linalg/kernels.h"
#include "core/update/sparse.h"

namespace starling::update {
namespace {

// What a pass reads at a time: small enough to stay in the second cache for the next step.
constexpr std::size_t kBlock = 64 * 1024;

// A read of a sparse vector begins with the bitmap of the block that it begins in, 2 KiB.
constexpr std::size_t kIndexBlock = 16 * 1024;

// By what the head says alone. A vector whose encoding says its size announces none.
Result<void> check_sizes(const VectorSpec& vector) {
  const bool sparse = is_sparse(vector.encoding);
  const std::uint64_t least = sparse ? bitmap_bytes(vector.elements) : 0;
  const std::uint64_t most = sparse ? encoded_bytes_max(vector) : 0;
  if (vector.bytes >= least && vector.bytes <= most && vector.bytes % sizeof(float) == 0) return {};
  return rejected("wrong-size",
                  fmt::format("the update announces {} bytes for vector '{}'; it must be {} to {} "
                              "and whole elements",
                              vector.bytes, vector.name, least, most));
}

Error bad_bitmap(const VectorSpec& spec, std::string_view what) {
  return rejected("bad-bitmap", fmt::format("the bitmap of vector '{}' {}", spec.name, what));
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

// One pass over the payload, which judges nothing before it knows the checksum: what was damaged on
// its way is not held against the sender.
class PayloadCheck {
 public:
  explicit PayloadCheck(Contribution& contribution) : contribution_(contribution) {}

  Result<void> read();
  Result<void> result(double value_max) const;
  double norm() const { return std::sqrt(squares_); }

 private:
  Result<void> read_dense(std::size_t i);
  Result<void> read_sparse(std::size_t i);
  template <class Visit>
  Result<void> measure(std::size_t i, Visit visit);

  Contribution& contribution_;
  Checksum hash_;
  std::vector<float> largest_;      // magnitude of each vector; not finite where an element is not
  double squares_ = 0;              // the sum of all
  std::optional<Error> malformed_;  // the first vector that is
};

Result<void> PayloadCheck::read() {
  const std::vector<VectorSpec>& vectors = contribution_.head().vectors;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    STARLING_TRY(is_sparse(vectors[i].encoding) ? read_sparse(i) : read_dense(i));
  }
  return {};
}

Result<void> PayloadCheck::read_dense(std::size_t i) {
  return measure(i, [this](std::span<const float> values) { hash_.update(as_bytes(values)); });
}

Result<void> PayloadCheck::read_sparse(std::size_t i) {
  const VectorSpec& spec = contribution_.head().vectors[i];
  const std::uint64_t begin = contribution_.offset_of(i);
  Bytes piece;
  for (std::uint64_t at = 0; at < spec.bytes; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, spec.bytes - at)));
    STARLING_TRY(contribution_.read_payload(begin + at, piece));
    hash_.update(piece);
  }
  auto indexed = contribution_.index_sparse(i);
  if (!indexed) {
    if (indexed.error().kind() != ErrorKind::kRejected) return indexed;
    if (!malformed_) malformed_ = indexed.error();
    largest_.push_back(0);
    return {};
  }
  std::uint64_t stored = 0;
  STARLING_TRY(measure(i, [&](std::span<const float> values) { stored += count_stored(values); }));
  if (sparse_bytes(spec.elements, stored) != spec.bytes && !malformed_) {
    malformed_ = rejected("stored-zero", fmt::format("the sparse vector '{}' stores elements that "
                                                     "are zero",
                                                     spec.name));
  }
  return {};
}

// The same blocks of elements in every encoding, so that the sums are the same bits.
template <class Visit>
Result<void> PayloadCheck::measure(std::size_t i, Visit visit) {
  const linalg::Kernels& kernels = linalg::default_kernels();
  std::int32_t largest = 0;
  std::array<double, 8> sum{};
  STARLING_TRY(
      contribution_.for_each_block(i, kBlock, [&](std::size_t, std::span<const float> values) {
        visit(values);
        largest = std::max(largest, kernels.largest_magnitude_bits(values.data(), values.size()));
        kernels.add_squares(sum.data(), values.data(), values.size());
      }));
  largest_.push_back(std::bit_cast<float>(largest));
  squares_ += ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  return {};
}

Result<void> PayloadCheck::result(double value_max) const {
  const ContributionHead& head = contribution_.head();
  if (hash_.value() != head.payload_checksum) {
    return rejected("checksum-mismatch", "the update was damaged on its way");
  }
  if (malformed_) return *malformed_;
  for (std::size_t i = 0; i < head.vectors.size(); ++i) {
    STARLING_TRY(check_values(largest_[i], head.vectors[i], value_max));
  }
  return {};
}

std::uint64_t Contribution::offset_of(std::size_t i) const {
  STARLING_CHECK(i < head_.vectors.size());
  return payload_bytes(std::span(head_.vectors).first(i));
}

std::span<const float> Contribution::vector(std::size_t i) const {
  STARLING_CHECK(is_plain(i));
  const std::byte* const bytes = payload_.in_memory()->view().data() + offset_of(i);
  return {reinterpret_cast<const float*>(bytes),
          static_cast<std::size_t>(head_.vectors[i].elements)};
}

Result<void> Contribution::read(std::size_t i, std::size_t first, std::span<float> out) const {
  if (is_sparse(head_.vectors[i].encoding)) return read_sparse(i, first, out);
  return read_payload(offset_of(i) + first * sizeof(float), std::as_writable_bytes(out));
}

Result<void> Contribution::read_payload(std::uint64_t offset, MutableByteView out) const {
  const auto done = payload_.read(offset, out);
  if (done) return {};
  return retry("upload-unreadable", fmt::format("the update that was received cannot be read: {}",
                                                done.error().message()));
}

// Counts what is stored from the beginning of the block in which the range begins.
Result<void> Contribution::read_sparse(std::size_t i, std::size_t first,
                                       std::span<float> out) const {
  if (out.empty()) return {};
  const std::size_t block = first / kIndexBlock;
  const std::size_t skipped = first - block * kIndexBlock;
  Bytes bitmap(static_cast<std::size_t>(bitmap_bytes(skipped + out.size())));
  const std::uint64_t begin = offset_of(i);
  STARLING_TRY(read_payload(begin + block * kIndexBlock / 8, bitmap));
  const std::uint64_t ahead = stored_ahead_[i][block] + count_bits(bitmap, 0, skipped);
  const auto stored = static_cast<std::size_t>(count_bits(bitmap, skipped, skipped + out.size()));
  if (ahead + stored > stored_ahead_[i].back()) {
    return retry("upload-unreadable", "the update that was received has changed in its file");
  }
  const std::uint64_t values = begin + sparse_bytes(head_.vectors[i].elements, ahead);
  STARLING_TRY(read_payload(values, std::as_writable_bytes(out.last(stored))));
  expand(bitmap, skipped, out);
  return {};
}

// "bad-bitmap", "upload-unreadable".
Result<void> Contribution::index_sparse(std::size_t i) {
  const VectorSpec& spec = head_.vectors[i];
  const std::uint64_t begin = offset_of(i);
  std::vector<std::uint64_t>& ahead = stored_ahead_[i];
  ahead.push_back(0);
  Bytes bitmap;
  for (std::uint64_t first = 0; first < spec.elements; first += kIndexBlock) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(kIndexBlock, spec.elements - first));
    bitmap.resize(static_cast<std::size_t>(bitmap_bytes(count)));
    STARLING_TRY(read_payload(begin + first / 8, bitmap));
    if (count_bits(bitmap, count, bitmap.size() * 8) > 0) {
      return bad_bitmap(spec, "has bits beyond its elements");
    }
    ahead.push_back(ahead.back() + count_bits(bitmap, 0, count));
  }
  if (sparse_bytes(spec.elements, ahead.back()) == spec.bytes) return {};
  return bad_bitmap(spec, fmt::format("is of a vector of {} bytes; {} were announced",
                                      sparse_bytes(spec.elements, ahead.back()), spec.bytes));
}

Result<void> validate_head(const ContributionHead& head, const Schema& schema) {
  if (!answers(head.vectors, schema.vectors)) {
    return rejected("wrong-vectors",
                    fmt::format("the update's vectors (names, encodings or sizes) are not those "
                                "that task {} asked for",
                                head.task.value()));
  }
  for (const VectorSpec& vector : head.vectors) STARLING_TRY(check_sizes(vector));
  if (head.payload_bytes != payload_bytes(head.vectors)) {
    return rejected("wrong-size", fmt::format("the update announces {} bytes; its vectors for task "
                                              "{} take {}",
                                              head.payload_bytes, head.task.value(),
                                              payload_bytes(head.vectors)));
  }
  if (!std::isfinite(head.weight) || head.weight <= 0) {
    return rejected("bad-weight",
                    fmt::format("the update's weight is {}; it must be positive", head.weight));
  }
  if (head.weight < kWeightMin) {
    return rejected("weight-out-of-range",
                    fmt::format("the update's weight {:g} is below {:g}, the least that counts "
                                "exactly; weigh by rows",
                                head.weight, kWeightMin));
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
  PayloadCheck check(contribution);
  STARLING_TRY(check.read());
  STARLING_TRY(check.result(schema.bounds.value_max));
  contribution.norm_ = check.norm();
  return contribution;
}

}  // namespace starling::update

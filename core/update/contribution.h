// SPDX-License-Identifier: Apache-2.0
// What a client contributes to a round: named flat vectors with a declared encoding, named scalars,
// a weight, the task it answers and the model version it started from. validate() is the one gate:
// a Contribution that exists is well-formed, finite and within the round's bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/update/encoding.h"
#include "core/update/payload.h"

namespace starling::update {

// A model that a round started from or ended with; round 0 is the initial model.
struct ModelVersion {
  RunId run;
  Round round = 0;
  Sha256Digest sha256;
  // Of the run; its number alone is given again by another federation, and by a coordinator that is
  // restored from a backup made before the run was submitted. 0: from a version without keys.
  std::uint32_t run_key = 0;
  friend bool operator==(const ModelVersion&, const ModelVersion&) = default;
  // Whether both may be the same model: a key that is not known matches any.
  bool matches(const ModelVersion& other) const {
    return run == other.run && round == other.round && sha256 == other.sha256 &&
           is_same_run(run_key, other.run_key);
  }
  static bool is_same_run(std::uint32_t key, std::uint32_t other_key) {
    return key == other_key || key == 0 || other_key == 0;
  }
};

// Limits that the round's exact sums are built for (see aggregate/fixed_point_sum.h). What exceeds
// them is refused by name.
struct Bounds {
  double value_max = 16'777'216;        // 2^24: |element|
  double weight_max = 16'777'216;       // 2^24: training rows of one client
  std::uint32_t contributions_max = 1;  // per round
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

// What a round expects of every contribution.
struct Schema {
  std::vector<VectorSpec> vectors;
  std::vector<std::string> scalars;  // names; others may come too
  Bounds bounds;
  friend bool operator==(const Schema&, const Schema&) = default;
};

// A contribution without its vectors' values: what is offered before anything is sent.
struct ContributionHead {
  TaskId task;
  ModelVersion base;
  double weight = 0;
  std::vector<VectorSpec> vectors;
  std::map<std::string, double> scalars;  // "train_loss", ...
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_checksum = 0;  // XXH3, against accidents
  friend bool operator==(const ContributionHead&, const ContributionHead&) = default;
};

inline constexpr double kWeightMin = 1e-6;  // sums of smaller ones lose bits of the vectors
inline constexpr std::size_t kScalarsMax = 64;
inline constexpr double kScalarMax = 1e100;  // its product with any weight is finite
inline constexpr std::size_t kNameBytesMax = 128;
// An evaluation's scalars are "loss", "accuracy" where there is one, and "metrics.NAME". A training
// may have "metrics.NAME" beside "train_loss" and those of its strategy.
inline constexpr std::string_view kMetricPrefix = "metrics.";

class Contribution {
 public:
  const ContributionHead& head() const { return head_; }
  double weight() const { return head_.weight; }
  double norm() const { return norm_; }  // Euclidean, of all vectors; the same on every processor
  // The i-th vector of the schema; valid as long as this object. Requires: is_plain(i).
  std::span<const float> vector(std::size_t i) const;
  // Any vector from its beginning to its end, in blocks of at most `elements`, visit(first,
  // values); one that is not plain is in memory one block at a time. "upload-unreadable".
  template <class Visit>
  [[nodiscard]] Result<void> for_each_block(std::size_t i, std::size_t elements,
                                            Visit visit) const {
    const auto size = static_cast<std::size_t>(head_.vectors[i].elements);
    std::vector<float> buffer;
    for (std::size_t first = 0; first < size; first += elements) {
      const std::size_t count = std::min(elements, size - first);
      if (is_plain(i)) {
        visit(first, vector(i).subspan(first, count));
        continue;
      }
      buffer.resize(count);
      STARLING_TRY(read(i, first, buffer));
      visit(first, std::span<const float>(buffer));
    }
    return {};
  }
  // Its elements from `first` on. "upload-unreadable". Requires: the range lies within the vector.
  [[nodiscard]] Result<void> read(std::size_t i, std::size_t first, std::span<float> out) const;
  // Whether the payload holds the vector in memory as an array of floats.
  bool is_plain(std::size_t i) const {
    return payload_.in_memory() != nullptr && !is_sparse(head_.vectors[i].encoding);
  }

 private:
  friend class PayloadCheck;
  friend Result<Contribution> validate(ContributionHead, Payload, const Schema&);
  Contribution(ContributionHead head, Payload payload)
      : head_(std::move(head)), payload_(std::move(payload)), stored_ahead_(head_.vectors.size()) {}

  std::uint64_t offset_of(std::size_t i) const;
  Result<void> read_payload(std::uint64_t offset, MutableByteView out) const;
  Result<void> read_sparse(std::size_t i, std::size_t first, std::span<float> out) const;
  Result<void> index_sparse(std::size_t i);

  ContributionHead head_;
  Payload payload_;
  // Of each vector; of a sparse one, how many elements are stored ahead of each block of them, and
  // in all: where a block begins in the payload.
  std::vector<std::vector<std::uint64_t>> stored_ahead_;
  double norm_ = 0;
};

// Checks the head alone, before a byte of payload is accepted: "wrong-vectors", "bad-weight",
// "weight-out-of-range", "bad-scalars", "missing-scalar", "wrong-size".
[[nodiscard]] Result<void> validate_head(const ContributionHead& head, const Schema& schema);

// Checks everything: the above, then "upload-unreadable", "checksum-mismatch", "bad-bitmap",
// "stored-zero", "not-finite", "value-out-of-range". Requires: a payload in memory is aligned for
// float. Costs one pass over the payload, two over a sparse vector. Norm and verdict are the same
// for a vector in its sparse and in its dense form.
[[nodiscard]] Result<Contribution> validate(ContributionHead head, Payload payload,
                                            const Schema& schema);

}  // namespace starling::update

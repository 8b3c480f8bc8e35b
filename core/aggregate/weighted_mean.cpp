// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/weighted_mean.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace starling::aggregate {
namespace {

constexpr std::uint32_t kMagic = 0x314D5753;  // "SWM1"
constexpr std::size_t kBlock = 64 * 1024;     // of an update that is read from a file

template <class Integer>
void append(Bytes& bytes, Integer value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  store_little(bytes.data() + at, value);
}

void append(Bytes& bytes, ByteView view) {
  append<std::uint64_t>(bytes, view.size());
  bytes.insert(bytes.end(), view.begin(), view.end());
}

void append(Bytes& bytes, const linalg::ExactSum& sum) {
  for (const std::int64_t limb : sum.limbs()) append(bytes, limb);
}

// Reads what append wrote; once something is missing every later read fails too.
class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }
  ByteView take(std::uint64_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const ByteView view = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(view.size());
    return view;
  }
  template <class Integer>
  Integer integer() {
    const ByteView view = take(sizeof(Integer));
    return ok_ ? load_little<Integer>(view.data()) : Integer{};
  }
  ByteView block() { return take(integer<std::uint64_t>()); }
  linalg::ExactSum sum() {
    std::array<std::int64_t, linalg::ExactSum::kLimbs> limbs{};
    for (std::int64_t& limb : limbs) limb = integer<std::int64_t>();
    return linalg::ExactSum::from_limbs(limbs);
  }

 private:
  ByteView rest_;
  bool ok_ = true;
};

// What the coarse of two sums takes of a value is a multiple of this, so that it is exact to 2^-24
// of it.
double unit_of(const FixedPointScale& scale) { return 0x1p24 * scale.resolution(); }

Error damaged() { return rejected("bad-aggregate", "a stored aggregate is damaged"); }

}  // namespace

Result<WeightedMean> WeightedMean::create(const update::Schema& schema,
                                          const std::vector<std::string>& scalars,
                                          ValueRange range) {
  const update::Bounds& bounds = schema.bounds;
  STARLING_ASSIGN(
      const FixedPointScale scale,
      FixedPointScale::for_bounds(bounds.value_max, bounds.weight_max, bounds.contributions_max));
  std::vector<FixedPointScale> scales = {scale};
  if (range == ValueRange::kFloat32) {
    STARLING_ASSIGN(
        const FixedPointScale fine,
        FixedPointScale::for_bounds(unit_of(scale), bounds.weight_max, bounds.contributions_max));
    scales.push_back(fine);
  }
  return WeightedMean(schema, scales, scalars);
}

WeightedMean::WeightedMean(update::Schema schema, const std::vector<FixedPointScale>& scales,
                           const std::vector<std::string>& scalars)
    : schema_(std::move(schema)), sums_each_(scales.size()), scalars_(scalars) {
  for (const update::VectorSpec& vector : schema_.vectors) {
    for (const FixedPointScale& scale : scales) {
      sums_.emplace_back(static_cast<std::size_t>(vector.elements), scale);
    }
  }
}

void WeightedMean::add(std::size_t vector, std::size_t first, std::span<const float> values,
                       double weight) {
  FixedPointSum& sum = sums_[vector * sums_each_];
  if (sums_each_ == 1) return sum.add(weight, values, first);
  // Both parts are floats: a value of 2^24 units or more is a multiple of the unit itself.
  const double unit = unit_of(sum.scale());
  coarse_.resize(kBlock);
  fine_.resize(kBlock);
  for (std::size_t at = 0; at < values.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - at);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(values[at + i]);
      const double multiple = std::nearbyint(value / unit) * unit;
      coarse_[i] = static_cast<float>(multiple);
      fine_[i] = static_cast<float>(value - multiple);
    }
    sum.add(weight, std::span(coarse_).first(count), first + at);
    sums_[vector * sums_each_ + 1].add(weight, std::span(fine_).first(count), first + at);
  }
}

Result<void> WeightedMean::accumulate(const update::Contribution& contribution) {
  STARLING_CHECK(update::answers(contribution.head().vectors, schema_.vectors));
  if (scalars_.contributions == schema_.bounds.contributions_max) {
    return rejected(
        "too-many-contributions",
        fmt::format("this round sums at most {} contributions", scalars_.contributions));
  }
  for (std::size_t i = 0; i < schema_.vectors.size(); ++i) {
    const auto added = contribution.for_each_block(i, kBlock, [&](std::size_t first, auto values) {
      add(i, first, values, contribution.weight());
    });
    if (!added) return internal(added.error().code(), added.error().message());
  }
  scalars_.add(contribution.head());
  return {};
}

Bytes WeightedMean::serialize() {
  Bytes bytes;
  append(bytes, kMagic);
  append(bytes, scalars_.contributions);
  append(bytes, scalars_.weight);
  append<std::uint32_t>(bytes, static_cast<std::uint32_t>(scalars_.scalars.size()));
  for (const auto& [name, sum] : scalars_.scalars) {
    append(bytes, as_bytes(name));
    append(bytes, sum.weighted);
    append(bytes, sum.weight);
  }
  for (FixedPointSum& sum : sums_) append(bytes, ByteView(sum.serialize()));
  return bytes;
}

Result<void> WeightedMean::merge(ByteView serialized) {
  Reader reader(serialized);
  if (reader.integer<std::uint32_t>() != kMagic) return damaged();
  const auto contributions = reader.integer<std::uint32_t>();
  if (contributions > schema_.bounds.contributions_max - scalars_.contributions) {
    return rejected(
        "too-many-contributions",
        fmt::format("{} and {} contributions exceed this round's {}", scalars_.contributions,
                    contributions, schema_.bounds.contributions_max));
  }
  const linalg::ExactSum weight = reader.sum();
  std::map<std::string, ScalarSums::Sum> scalars;
  const auto count = reader.integer<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const std::string name(as_text(reader.block()));
    const linalg::ExactSum weighted = reader.sum();
    scalars[name] = {weighted, reader.sum()};
  }
  const bool same_scalars =
      std::equal(scalars.begin(), scalars.end(), scalars_.scalars.begin(), scalars_.scalars.end(),
                 [](const auto& a, const auto& b) { return a.first == b.first; });
  if (!same_scalars) return damaged();
  std::vector<FixedPointSum> sums;
  for (const FixedPointSum& own : sums_) {
    STARLING_ASSIGN(FixedPointSum sum, FixedPointSum::deserialize(reader.block(), own.elements()));
    if (sum.elements() != own.elements() || sum.scale() != own.scale()) return damaged();
    sums.push_back(std::move(sum));
  }
  if (!reader.at_end()) return damaged();
  for (std::size_t i = 0; i < sums.size(); ++i) sums_[i].merge(sums[i]);
  for (const auto& [name, sum] : scalars) {
    scalars_.scalars[name].weighted.merge(sum.weighted);
    scalars_.scalars[name].weight.merge(sum.weight);
  }
  scalars_.weight.merge(weight);
  scalars_.contributions += contributions;
  return {};
}

Report WeightedMean::report() && {
  STARLING_CHECK(can_report());
  Report report = scalars_.report();
  if (sums_.empty()) return report;
  const double added = report.contributions * sums_.back().scale().resolution();
  report.resolution =
      std::max(added / report.weight, double{std::numeric_limits<float>::denorm_min()});
  for (std::size_t i = 0; i < sums_.size(); i += sums_each_) {
    const std::size_t elements = sums_[i].elements();
    PageBlock means = std::move(sums_[i]).divide(report.weight);
    if (sums_each_ > 1) {
      Means rest(std::move(sums_[i + 1]).divide(report.weight), elements);
      auto* const out = reinterpret_cast<double*>(means.data());
      rest.consume([&](std::size_t first, std::span<const double> values) {
        for (std::size_t j = 0; j < values.size(); ++j) out[first + j] += values[j];
      });
    }
    report.vectors.emplace_back(std::move(means), elements);
  }
  return report;
}

}  // namespace starling::aggregate

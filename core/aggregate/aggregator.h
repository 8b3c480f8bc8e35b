// SPDX-License-Identifier: Apache-2.0
// The algebra of an aggregation rule that needs no more than a sum: accumulate, merge, can_report,
// report. An aggregate in progress is a value: it can be stored, sent to another machine and merged
// there, with the same bits. Rules that need all updates at once are JointRules (joint_rule.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/page_block.h"
#include "core/update/contribution.h"

namespace starling::aggregate {

// The means of a vector's elements, or what a rule makes of them instead. Those of a sum are in the
// memory that held it.
class Means {
 public:
  Means(std::initializer_list<double> values) : Means(std::span(values.begin(), values.size())) {}
  explicit Means(std::span<const double> values);
  Means(const Means& other);
  Means(Means&&) noexcept = default;
  Means& operator=(Means&&) noexcept = default;
  // `doubles` holds `size` of them.
  Means(PageBlock doubles, std::size_t size) : memory_(std::move(doubles)), size_(size) {}

  std::size_t size() const { return size_; }
  double operator[](std::size_t i) const { return values()[i]; }
  std::span<const double> values() const {
    return {reinterpret_cast<const double*>(memory_.data()), size_};
  }
  // Calls visit(first, values) from the beginning to the end, and gives the memory of each block
  // back when it has been visited: what is made of the means needs no room beside them. Elements
  // read as zero afterwards.
  template <class Visit>
  void consume(Visit visit) {
    constexpr std::size_t kBlock = 256 * 1024;
    for (std::size_t first = 0; first < size_; first += kBlock) {
      const auto block = values().subspan(first, std::min(kBlock, size_ - first));
      visit(first, block);
      memory_.release(first * sizeof(double), block.size_bytes());
    }
  }

 private:
  PageBlock memory_;
  std::size_t size_;
};

struct Report {
  std::vector<Means> vectors;             // as the schema orders them
  std::map<std::string, double> scalars;  // weighted means over those who sent the scalar
  double weight = 0;                      // total
  std::uint32_t contributions = 0;
  // Of a sum: what the means of the vectors' elements are exact to, apart from their rounding to
  // double.
  double resolution = 0;
};

class Aggregator {
 public:
  virtual ~Aggregator() = default;

  // Requires: validated against this aggregator's schema. "too-many-contributions" beyond the
  // bound. kInternal where its payload cannot be read any more: the aggregate is of no use then.
  [[nodiscard]] virtual Result<void> accumulate(const update::Contribution& contribution) = 0;
  // Adds what `serialized` (of the same rule and schema) has seen.
  [[nodiscard]] virtual Result<void> merge(ByteView serialized) = 0;
  virtual Bytes serialize() = 0;
  virtual bool can_report() const = 0;
  // Ends the aggregation. Requires: can_report().
  virtual Report report() && = 0;
};

}  // namespace starling::aggregate

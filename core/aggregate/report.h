// SPDX-License-Identifier: Apache-2.0
// What an aggregation came to. Mean vectors are read in pieces, so that nobody needs memory for a
// whole one in double.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace starling::aggregate {

class MeanVector {
 public:
  virtual ~MeanVector() = default;
  virtual std::size_t elements() const = 0;
  // out = elements [begin, begin + out.size()). Requires: within elements().
  virtual void read(std::size_t begin, std::span<double> out) const = 0;
};

struct Report {
  std::vector<std::unique_ptr<const MeanVector>> vectors;  // as the schema orders them
  std::map<std::string, double> scalars;  // weighted means over those who sent the scalar
  double weight = 0;                      // total
  std::uint32_t contributions = 0;
};

// Calls body(begin, values) for consecutive pieces that fit into the first-level cache.
template <class Body>
void for_each_tile(const MeanVector& mean, Body&& body) {
  std::array<double, 1024> tile;
  for (std::size_t begin = 0; begin < mean.elements(); begin += tile.size()) {
    const std::span<double> values(tile.data(), std::min(tile.size(), mean.elements() - begin));
    mean.read(begin, values);
    body(begin, std::span<const double>(values));
  }
}

// A mean that is in memory already: of rules that compute it whole, and of tests.
class PlainMean final : public MeanVector {
 public:
  explicit PlainMean(std::vector<double> values) : values_(std::move(values)) {}
  std::size_t elements() const override { return values_.size(); }
  void read(std::size_t begin, std::span<double> out) const override {
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
  }

 private:
  std::vector<double> values_;
};

}  // namespace starling::aggregate

// SPDX-License-Identifier: Apache-2.0
// What of an algorithm's state outlives a process beside its model: named parts whose sizes follow
// from the model, visited in order for writing and for reading alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace starling::gossip {

template <class T>
class Algorithm;
template <class T>
class AsyncAlgorithm;

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void visit(std::string_view name, std::span<float> values) = 0;
  virtual void visit(std::string_view name, std::span<double> values) = 0;
  virtual void visit(std::string_view name, std::span<std::uint64_t> values) = 0;
  void visit(std::string_view name, double& value) { visit(name, std::span(&value, 1)); }
};

// Empty where the model is all.
template <class T>
Bytes save_state(Algorithm<T>& algorithm);
template <class T>
Bytes save_state(AsyncAlgorithm<T>& algorithm);

// Into an object that was just made with the same settings and the model of the same moment.
// "state-mismatch": the parts are not those of this algorithm and model; nothing is changed then.
template <class T>
[[nodiscard]] Result<void> restore_state(Algorithm<T>& algorithm, ByteView state);
template <class T>
[[nodiscard]] Result<void> restore_state(AsyncAlgorithm<T>& algorithm, ByteView state);

}  // namespace starling::gossip

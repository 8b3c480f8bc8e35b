// SPDX-License-Identifier: Apache-2.0
// What one side of a strategy remembers between rounds, as a plain value: momentum and moments at
// the server, control variates at a client. It is stored and committed with the model (the
// server's) or with the update (a client's), so a strategy object keeps nothing by itself.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/linalg/aligned.h"

namespace starling::strategy {

template <class T>
struct State {
  std::map<std::string, linalg::AlignedVector<T>> vectors;  // each of the model's size
  std::map<std::string, double> scalars;

  bool empty() const { return vectors.empty() && scalars.empty(); }
  friend bool operator==(const State&, const State&) = default;
};

// Shared, because it is as large as a model or two. Null: none.
using StateSnapshot = std::shared_ptr<const State<float>>;

}  // namespace starling::strategy

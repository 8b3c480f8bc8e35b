// SPDX-License-Identifier: Apache-2.0
// All members of one reduction, and the pieces between them.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "gossip/collective/reduction.h"

namespace starling::collective::testing {

class OneReduction {
 public:
  using Change = std::function<void(std::size_t from, Reduction::Outgoing& piece)>;

  OneReduction(Shape shape, const std::vector<std::vector<float>>& inputs,
               double distance_max = std::numeric_limits<double>::infinity()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      parts.emplace_back(shape, i, inputs.size(), share(inputs[i]), distance_max);
    }
  }

  // Pieces arrive as they were sent, or in an order that is drawn, but for those of one pair.
  // `change` may change what is sent.
  void run(const Change& change = {}, Rng* order = nullptr) {
    std::deque<std::pair<std::size_t, Reduction::Outgoing>> queue;  // from
    std::vector<Reduction::Outgoing> out;
    const auto send = [&](std::size_t from) {
      for (Reduction::Outgoing& piece : std::exchange(out, {})) {
        if (change) change(from, piece);
        queue.emplace_back(from, std::move(piece));
      }
    };
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].start(out);
      send(i);
    }
    while (!queue.empty()) {
      const auto& drawn = queue[order != nullptr ? order->below(queue.size()) : 0];
      const auto first = std::ranges::find_if(queue, [&](const auto& sent) {
        return sent.first == drawn.first && sent.second.to == drawn.second.to;
      });
      const auto [from, piece] = std::move(*first);
      queue.erase(first);
      const auto taken = parts[piece.to].take(from, piece.place, piece.floats, out);
      if (taken == Reduction::Taken::kWrong) refused.emplace_back(piece.to, from);
      if (taken == Reduction::Taken::kNotNow) ++out_of_turn;
      send(piece.to);
    }
  }

  bool all_done() const { return std::ranges::all_of(parts, &Reduction::done); }
  // Requires: it is done.
  std::vector<float> mean(std::size_t member) const {
    const auto values = parts[member].mean().values;
    return {values.begin(), values.end()};
  }

  std::vector<Reduction> parts;
  std::vector<std::pair<std::size_t, std::size_t>> refused;  // by, of
  std::size_t out_of_turn = 0;
};

}  // namespace starling::collective::testing

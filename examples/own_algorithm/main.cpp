// SPDX-License-Identifier: Apache-2.0
// Adds a gossip algorithm to starling-gossip: each node takes the median, parameter by parameter,
// of its own model and its neighbours', so that a few outliers have little influence. All flags of
// `simulate` work with it: --sweep, --seeds, --real-protocol, ...
#include <algorithm>
#include <utility>
#include <vector>

#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/tool/run_commands.h"

using namespace starling;

class Median final : public gossip::Algorithm<float> {
 public:
  explicit Median(std::span<const float> model)
      : x_(model.begin(), model.end()), next_(model.size()) {}

  Result<double> adapt(gossip::LocalTraining<float>& training, const gossip::LocalPhase& phase,
                       const gossip::Links&) override {
    message_.first = x_;
    return training.steps(x_, phase.rate, phase.steps);
  }

  const gossip::Message<float>& message(std::size_t) const override { return message_; }

  // Of an even number of values the mean of the middle two.
  void absorb(const gossip::Links&, std::span<const gossip::Received<float>> inbox,
              gossip::Columns columns) override {
    std::vector<float> values;
    for (std::size_t i = columns.begin; i < columns.end; ++i) {
      values.assign(1, x_[i]);
      for (const auto& received : inbox) {
        if (received.message != nullptr) values.push_back(received.message->first[i]);
      }
      std::ranges::sort(values);
      next_[i] = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
    }
  }

  void conclude(const gossip::Links&, std::span<const gossip::Received<float>>) override {
    std::swap(x_, next_);
  }

  std::span<const float> model() const override { return x_; }
  void restart(std::span<const float> model) override { x_.assign(model.begin(), model.end()); }
  // So that a simulation that was stopped can go on.
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    return true;
  }

 private:
  std::vector<float> x_;
  std::vector<float> next_;  // while neighbours may still read x_
  gossip::Message<float> message_;
};

int main(int argc, char** argv) {
  gossip::AlgorithmCatalogue algorithms;
  gossip::OwnAlgorithm median;
  median.traits.state_vectors = 2;
  median.sums = gossip::Sums::kAny;  // weights are not read
  median.make = [](const gossip::Plan&, gossip::Node, std::span<const float> model) {
    return std::make_unique<Median>(model);
  };
  algorithms.add("median", median);
  return gossip::run_commands(argc, argv, algorithms);
}

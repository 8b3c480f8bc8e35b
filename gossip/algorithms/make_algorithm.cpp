// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/make_algorithm.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "gossip/algorithms/all_reduce.h"
#include "gossip/algorithms/dpsgd.h"

namespace starling::gossip {
namespace {

constexpr std::array<AlgorithmTraits, 2> kTraits = {{
    {.name = "dpsgd", .state_vectors = 2},
    {.name = "all-reduce", .pattern = Pattern::kMean, .state_vectors = 2},
}};
static_assert(kTraits.size() == kAlgorithms.size());

}  // namespace

AlgorithmTraits traits(const AlgorithmOptions& options) {
  const auto* found = std::ranges::find(kTraits, options.name, &AlgorithmTraits::name);
  STARLING_CHECK(found != kTraits.end());
  AlgorithmTraits result = *found;
  result.sends_before_training = options.name == "dpsgd" && options.order == "combine-while-adapt";
  return result;
}

template <class T>
std::unique_ptr<Algorithm<T>> make_algorithm(const Plan& plan, Node, std::span<const T> model) {
  const AlgorithmOptions& o = plan.options;
  if (o.name == "dpsgd") return std::make_unique<Dpsgd<T>>(o.order == "adapt-then-combine", model);
  if (o.name == "all-reduce") return std::make_unique<AllReduce<T>>(model);
  STARLING_CHECK(false);
}

template std::unique_ptr<Algorithm<float>> make_algorithm(const Plan&, Node,
                                                          std::span<const float>);
template std::unique_ptr<Algorithm<double>> make_algorithm(const Plan&, Node,
                                                           std::span<const double>);

}  // namespace starling::gossip

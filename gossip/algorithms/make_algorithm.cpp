// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/make_algorithm.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/base/check.h"
#include "gossip/algorithms/ad_psgd.h"
#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/algorithms/all_reduce.h"
#include "gossip/algorithms/choco.h"
#include "gossip/algorithms/d2.h"
#include "gossip/algorithms/detag.h"
#include "gossip/algorithms/diloco.h"
#include "gossip/algorithms/diloco_all.h"
#include "gossip/algorithms/dpsgd.h"
#include "gossip/algorithms/epidemic.h"
#include "gossip/algorithms/gradient_tracking.h"
#include "gossip/algorithms/lossy_sgp.h"
#include "gossip/algorithms/push_sum.h"
#include "gossip/algorithms/qg_dsgdm.h"
#include "gossip/algorithms/relaysgd.h"
#include "gossip/algorithms/sgp.h"

namespace starling::gossip {
namespace {

// In float; a vector of doubles counts 2.
constexpr std::array<AlgorithmTraits, kAlgorithms.size()> kTraits = {{
    {.name = "dpsgd", .plain_means = true, .mixes_models = true, .state_vectors = 2},
    {.name = "sgp", .weighs = true, .state_vectors = 2},
    {.name = "gradient-tracking",
     .loss_safe = false,
     .corrects_steps = true,
     .steps_itself = true,
     .state_vectors = 5},
    {.name = "choco", .loss_safe = false, .whole_columns = true, .state_vectors = 5},
    {.name = "d2", .loss_safe = false, .corrects_steps = true, .state_vectors = 4},
    {.name = "epidemic", .plain_means = true, .mixes_models = true, .state_vectors = 2},
    {.name = "qg-dsgdm", .steps_itself = true, .mixes_models = true, .state_vectors = 3},
    {.name = "relaysgd", .per_receiver = true, .plain_means = true, .state_vectors = 1},
    {.name = "ad-psgd", .pattern = Pattern::kPairs, .state_vectors = 2},
    {.name = "push-sum", .pattern = Pattern::kPairs, .weighs = true, .state_vectors = 1},
    {.name = "diloco", .mixes_models = true, .state_vectors = 3},
    {.name = "detag", .loss_safe = false, .steps_itself = true, .state_vectors = 11},
    {.name = "all-reduce", .pattern = Pattern::kMean, .plain_means = true, .state_vectors = 2},
    {.name = "diloco-all", .pattern = Pattern::kMean, .state_vectors = 3},
}};

const OwnAlgorithm* own_of(const AlgorithmOptions& options) {
  return options.own == nullptr ? nullptr : options.own->find(kind_of(options));
}

template <class T, class Made, class... Arguments>
std::unique_ptr<Algorithm<T>> make(const Arguments&... arguments) {
  return std::make_unique<Made>(arguments...);
}

}  // namespace

AlgorithmTraits traits(const AlgorithmOptions& options) {
  if (const OwnAlgorithm* own = own_of(options)) return own->traits;
  const auto* found = std::ranges::find(kTraits, kind_of(options), &AlgorithmTraits::name);
  STARLING_CHECK(found != kTraits.end());
  AlgorithmTraits result = *found;
  result.sends_before_training = options.name == "dpsgd" && options.order == "combine-while-adapt";
  // x moves by W x - x and by what training changed, which together may be beyond every x_j.
  if (result.sends_before_training) result.plain_means = false;
  return result;
}

std::string names_that_mix_models() {
  std::string names;
  for (const AlgorithmTraits& of : kTraits) {
    if (!of.mixes_models) continue;
    if (!names.empty()) names += ", ";
    names += of.name;
  }
  return names;
}

template <class T>
std::unique_ptr<Algorithm<T>> make_algorithm(const Plan& plan, Node node,
                                             std::span<const T> model) {
  const AlgorithmOptions& o = plan.options;
  const RobustOptions& r = plan.robust;
  if constexpr (std::is_same_v<T, float>) {
    if (const OwnAlgorithm* own = own_of(o)) return own->make(plan, node, model);
  }
  if (o.name == "dpsgd") return make<T, Dpsgd<T>>(o.order == "adapt-then-combine", r, model);
  if (o.name == "sgp" && plan.lossy) return make<T, LossySgp<T>>(plan.nodes, plan.balanced, model);
  if (o.name == "sgp") return make<T, Sgp<T>>(plan.nodes, model);
  if (o.name == "gradient-tracking") return make<T, GradientTracking<T>>(model);
  if (o.name == "choco") return make<T, Choco<T>>(o, plan.seed, node, model);
  if (o.name == "d2") return make<T, D2<T>>(model);
  if (o.name == "epidemic") return make<T, Epidemic<T>>(r, model);
  if (o.name == "qg-dsgdm") return make<T, QgDsgdm<T>>(o.momentum, r, model);
  if (o.name == "relaysgd") return make<T, RelaySgd<T>>(plan.nodes, model);
  if (o.name == "diloco") return make<T, Diloco<T>>(o.outer_rate, outer_momentum(o), r, model);
  if (o.name == "detag") return make<T, Detag<T>>(plan.slem, o.gossip_rounds, model);
  if (o.name == "diloco-all") return make<T, DilocoAll<T>>(o.outer_rate, outer_momentum(o), model);
  STARLING_CHECK(kind_of(o) == "all-reduce");
  return make<T, AllReduce<T>>(model);
}

template <class T>
std::unique_ptr<AsyncAlgorithm<T>> make_async_algorithm(const Plan& plan, Node node,
                                                        std::span<const T> model) {
  if constexpr (std::is_same_v<T, float>) {
    if (const OwnAlgorithm* own = own_of(plan.options)) return own->make_async(plan, node, model);
  }
  if (plan.options.name == "ad-psgd") {
    return std::make_unique<AdPsgd<T>>(plan.active.at(node) != 0, model);
  }
  STARLING_CHECK(plan.options.name == "push-sum");
  return std::make_unique<PushSum<T>>(plan.lossy, plan.nodes, model);
}

#define STARLING_INSTANTIATE(T)                                                                 \
  template std::unique_ptr<Algorithm<T>> make_algorithm(const Plan&, Node, std::span<const T>); \
  template std::unique_ptr<AsyncAlgorithm<T>> make_async_algorithm(const Plan&, Node,           \
                                                                   std::span<const T>);
STARLING_INSTANTIATE(float)
STARLING_INSTANTIATE(double)
#undef STARLING_INSTANTIATE

}  // namespace starling::gossip

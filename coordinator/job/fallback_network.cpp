// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/fallback_network.h"

#include "gossip/algorithms/make_algorithm.h"

namespace starling::coordinator {

Result<void> validate_fallback(const Job& job) {
  if (!job.fallback.enabled()) return {};
  if (job.fallback.topology.starts_with("d-cliques")) {
    return wrong_setting(
        "setting-invalid",
        "fallback.topology: d-cliques needs to know every client's labels, which they "
        "keep to themselves; name another topology");
  }
  const auto nodes = static_cast<topologies::Node>(job.round.cohort);
  const auto made = topologies::Topology::make({.spec = job.fallback.topology, .nodes = nodes});
  if (!made && made.error().code() == "topology-impossible") return {};
  if (!made) return made.error().within("fallback.topology");
  const auto fit = gossip::check_fit({}, {.topology = made->get(), .lossy = true});
  if (!fit) return fit.error().within("fallback.topology");
  return {};
}

gossip::NetOptions fallback_options(const Job& job) {
  gossip::NetOptions options;
  options.run = {.seed = job.job.seed, .steps = 1'000'000'000};
  options.topology.spec = job.fallback.topology;
  options.train.train = job.training.train;
  options.train.train.local_epochs = 1;
  options.train.train.local_steps = job.fallback.local_steps;
  options.model = job.training.model;
  options.model.initial.clear();  // they go on from the round's model
  return options;
}

gossip::FallbackTerms fallback_terms(RunId run, const Job& job) {
  return {.run = run.value(),
          .after = job.fallback.after,
          .merge_within = job.fallback.merge_within,
          .classes = job.training.data.classes};
}

}  // namespace starling::coordinator

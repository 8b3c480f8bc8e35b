// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/make_protocol.h"

#include <algorithm>

#include "core/base/check.h"
#include "gossip/peer/all_reduce_protocol.h"
#include "gossip/peer/asynchronous_protocol.h"
#include "gossip/peer/neighbour_protocol.h"
#include "gossip/training/initial_models.h"

namespace starling::gossip {
namespace {

// Who lost its link is back within this, or busy with something else.
constexpr Duration kLinkGrace = std::chrono::seconds(1);

// A neighbour that we wait for is one exchange behind at most; others may be by as much as a word
// takes to spread.
std::uint64_t resent_exchanges(const NetworkRun& run) {
  const bool mutual = !run.topology->directed() && !run.topology->time_varying();
  return mutual ? 2 : run.spread + 1;
}

}  // namespace

ProtocolStart start_with(const Checkpoint* kept, const identity::Roster& roster,
                         const NetworkRun& run, Member self) {
  const bool is_of_run = kept != nullptr && kept->run == roster.run_identity() &&
                         kept->model.size() == run.initial.size();
  if (!is_of_run) return {.model = initial_model_of(run.options, run.initial.values(), self)};
  ProtocolStart start{.exchange = kept->exchange, .support = kept->support, .model = kept->model};
  // Weights are shares of what one epoch's members hold together: in another all begin with 1.
  const KeptState& state = kept->state;
  const bool same_epoch = state.epoch == roster.epoch;
  const AlgorithmTraits& traits = run.plan.traits;
  if (state.algorithm == traits.name && (same_epoch || !traits.weighs)) start.state = state.bytes;
  return start;
}

std::unique_ptr<Algorithm<float>> take_algorithm(const NetworkRun& run, Member self,
                                                 ProtocolStart& start) {
  if (start.former) return std::move(start.former->algorithm);
  return make_algorithm<float>(run.plan, self, std::span<const float>(start.model));
}

std::size_t messages_of_use(const NetworkRun& run) {
  constexpr std::size_t kFew = 2;
  constexpr std::size_t kMost = 16;  // beyond, whoever is slow loses some
  const bool one_way = run.plan.traits.pattern == Pattern::kNeighbours &&
                       run.topology->directed() && !run.topology->time_varying();
  return one_way ? std::clamp<std::size_t>(resent_exchanges(run), kFew, kMost) : kFew;
}

std::unique_ptr<TrainingProtocol> make_protocol(const NetworkRun& run, LocalSteps& local,
                                                ProtocolPlace place,
                                                const ProtocolPatience& patience,
                                                ProtocolStart start, TimePoint now) {
  switch (run.plan.traits.pattern) {
    case Pattern::kNeighbours:
      return std::make_unique<NeighbourProtocol>(
          run, local, std::move(place),
          ExchangeOptions{.schedule = run.options.schedule(),
                          .loss_safe = run.plan.traits.loss_safe,
                          .corrects_steps = run.plan.traits.corrects_steps,
                          .new_process = !start.former,
                          .spread = run.spread,
                          .resent = resent_exchanges(run),
                          .held_max = messages_of_use(run),
                          // Where nobody is expected to go, whoever is slow is waited for.
                          .patience_min = run.lossy ? patience.min : patience.max,
                          .patience_max = patience.max,
                          .link_grace = run.lossy ? kLinkGrace : patience.max,
                          .start_patience = patience.start,
                          .run_age = start.run_age},
          std::move(start), now);
    case Pattern::kMean:
      return std::make_unique<AllReduceProtocol>(run, local, place, patience, std::move(start),
                                                 now);
    case Pattern::kPairs:
      return std::make_unique<AsynchronousProtocol>(run, local, std::move(place), patience,
                                                    std::move(start), now);
  }
  STARLING_CHECK(false);
}

}  // namespace starling::gossip

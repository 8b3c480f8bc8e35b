// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_executor.h"

namespace starling::coordinator {

RoundExecutor::RoundExecutor(Computation& computation, ComputePool& evaluators)
    : computation_(computation), bench_(std::make_shared<Bench>(Bench{evaluators})) {}

template <class T>
void RoundExecutor::run(std::function<Result<T>(Bench&)> work, Completion<T> done) {
  ++running_;
  compute<T>(
      computation_, alive_,
      [bench = bench_, work = std::move(work)](unsigned) { return work(*bench); },
      [this, done = std::move(done)](Result<T> result) {
        --running_;
        done(std::move(result));
      });
}

void RoundExecutor::begin(std::shared_ptr<const RunContext> context, BeginRound phase) {
  computation_.submit(
      [bench = bench_, context = std::move(context), phase = std::move(phase)](unsigned) {
        bench->aggregates.erase(phase.run);  // before memory is taken for the next one
        bench->aggregates.emplace(phase.run, RoundAggregate::begin(context, phase));
      },
      nullptr);
}

void RoundExecutor::drop(RunId run, std::function<void()> dropped) {
  auto work = [run](Bench& bench) -> Result<void> {
    bench.aggregates.erase(run);
    return {};
  };
  this->run<void>(std::move(work),
                  [dropped = std::move(dropped)](const Result<void>&) { dropped(); });
}

void RoundExecutor::add(RunId run, update::ContributionHead head, update::Payload payload,
                        Completion<double> done) {
  auto work = [run, head = std::move(head),
               payload = std::move(payload)](Bench& bench) -> Result<double> {
    const auto& aggregate = bench.aggregates.at(run);
    if (!aggregate) return aggregate.error();
    return (*aggregate)->add(head, payload);
  };
  this->run<double>(std::move(work), std::move(done));
}

void RoundExecutor::finish(RunId run, Completion<RoundOutcome> done) {
  auto work = [run](Bench& bench) -> Result<RoundOutcome> {
    const auto found = bench.aggregates.extract(run);
    if (!found.mapped()) return found.mapped().error();
    return std::move(**found.mapped()).finish(&bench.evaluators);
  };
  this->run<RoundOutcome>(std::move(work), std::move(done));
}

void RoundExecutor::write(store::Checkpoints checkpoints, RunPosition position,
                          std::shared_ptr<const std::string> settings,
                          Completion<store::ModelRecord> done) {
  auto work = [checkpoints = std::move(checkpoints), position = std::move(position),
               settings = std::move(settings)](Bench&) {
    return write_position(checkpoints, position, *settings);
  };
  run<store::ModelRecord>(std::move(work), std::move(done));
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_executor.h"

#include "coordinator/run_loader.h"

namespace starling::coordinator {
namespace {

// A round that has no sum is told so by name, whatever the reason.
Error no_round() { return internal("no-round", "no round is being summed"); }

}  // namespace

RoundExecutor::RoundExecutor(Computation& computation, ComputePool& evaluators)
    : computation_(computation), bench_(std::make_shared<Bench>(Bench{evaluators, {}, {}})) {}

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

void RoundExecutor::use(std::shared_ptr<const RunContext> context, model::Snapshot base) {
  computation_.submit(
      [bench = bench_, context = std::move(context), base = std::move(base)](unsigned) {
        bench->aggregate = std::unique_ptr<RoundAggregate>();  // it borrows the old context
        bench->context = context;
        bench->base = base;
      },
      nullptr);
}

void RoundExecutor::begin(update::Schema schema, std::optional<double> norm_max) {
  computation_.submit(
      [bench = bench_, schema = std::move(schema), norm_max](unsigned) {
        bench->aggregate = RoundAggregate::begin(*bench->context, schema, bench->base, norm_max);
      },
      nullptr);
}

void RoundExecutor::add(update::ContributionHead head, SharedBytes payload,
                        Completion<double> done) {
  auto work = [head = std::move(head),
               payload = std::move(payload)](Bench& bench) -> Result<double> {
    if (!bench.aggregate) return bench.aggregate.error();
    if (!*bench.aggregate) return no_round();
    return (*bench.aggregate)->add(head, payload);
  };
  run<double>(std::move(work), std::move(done));
}

void RoundExecutor::finish(Round round, Completion<RoundOutcome> done) {
  auto work = [round](Bench& bench) -> Result<RoundOutcome> {
    if (!bench.aggregate) return bench.aggregate.error();
    const auto aggregate = std::move(*bench.aggregate);
    if (!aggregate) return no_round();
    STARLING_ASSIGN(RoundOutcome outcome, std::move(*aggregate).finish(round, &bench.evaluators));
    bench.base = outcome.model;
    return outcome;
  };
  run<RoundOutcome>(std::move(work), std::move(done));
}

void RoundExecutor::write(store::Checkpoints checkpoints, Round round, model::Snapshot model,
                          Completion<void> done) {
  auto work = [checkpoints = std::move(checkpoints), round, model = std::move(model)](Bench&) {
    return write_model(checkpoints, round, model);
  };
  run<void>(std::move(work), std::move(done));
}

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_executor.h"

#include "core/model/safetensors.h"

namespace starling::coordinator {
namespace {

// A round that has no sum is told so by name, whatever the reason.
Error no_round() { return internal("no-round", "no round is being summed"); }

}  // namespace

RoundExecutor::RoundExecutor(net::EventLoop& loop, unsigned threads)
    : loop_(loop), evaluators_(threads), thread_(1) {}

RoundExecutor::~RoundExecutor() = default;

template <class T>
void RoundExecutor::run(std::function<Result<T>()> work, Completion<T> done) {
  ++running_;
  compute<T>(thread_, loop_, alive_, std::move(work),
             [this, done = std::move(done)](Result<T> result) {
               --running_;
               done(std::move(result));
             });
}

void RoundExecutor::use(std::shared_ptr<const RunContext> context, model::Snapshot base) {
  thread_.submit([this, context = std::move(context), base = std::move(base)](unsigned) {
    bench_.aggregate = std::unique_ptr<RoundAggregate>();  // it borrows the old context
    bench_.context = context;
    bench_.base = base;
  });
}

void RoundExecutor::begin(update::Schema schema, std::optional<double> norm_max) {
  thread_.submit([this, schema = std::move(schema), norm_max](unsigned) {
    bench_.aggregate = RoundAggregate::begin(*bench_.context, schema, bench_.base, norm_max);
  });
}

void RoundExecutor::add(update::ContributionHead head, SharedBytes payload,
                        Completion<double> done) {
  auto work = [this, head = std::move(head), payload = std::move(payload)]() -> Result<double> {
    if (!bench_.aggregate) return bench_.aggregate.error();
    if (!*bench_.aggregate) return no_round();
    return (*bench_.aggregate)->add(head, payload);
  };
  run<double>(std::move(work), std::move(done));
}

void RoundExecutor::finish(Round round, Completion<RoundOutcome> done) {
  auto work = [this, round]() -> Result<RoundOutcome> {
    if (!bench_.aggregate) return bench_.aggregate.error();
    const auto aggregate = std::move(*bench_.aggregate);
    if (!aggregate) return no_round();
    STARLING_ASSIGN(RoundOutcome outcome, std::move(*aggregate).finish(round, &evaluators_));
    bench_.base = outcome.model;
    return outcome;
  };
  run<RoundOutcome>(std::move(work), std::move(done));
}

void RoundExecutor::write(store::Checkpoints checkpoints, Round round, model::Snapshot model,
                          Completion<void> done) {
  auto work = [checkpoints = std::move(checkpoints), round,
               model = std::move(model)]() -> Result<void> {
    const Bytes header = model::safetensors_header(*model->layout(), {});
    const std::array<ByteView, 2> parts = {header, as_bytes(model->values())};
    return checkpoints.write(round, parts);
  };
  run<void>(std::move(work), std::move(done));
}

}  // namespace starling::coordinator

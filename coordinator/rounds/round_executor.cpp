// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/round_executor.h"

#include <algorithm>

namespace starling::coordinator {

template <class T>
void RoundExecutor::run(RunId run, std::function<Result<T>(std::optional<Aggregate>&)> work,
                        Completion<T> done) {
  Line& line = lines_[run];
  line.waiting.push_back(
      [this, run, aggregate = line.aggregate, work = std::move(work), done = std::move(done)] {
        compute<T>(
            computation_, alive_, [aggregate, work](unsigned) { return work(*aggregate); },
            [this, run, done](Result<T> result) {
              end(run);
              done(std::move(result));
            });
      });
  if (line.waiting.size() == 1) line.waiting.front()();
}

// The first of those that wait has been done.
void RoundExecutor::end(RunId run) {
  const auto found = lines_.find(run);
  Line& line = found->second;
  line.waiting.pop_front();
  if (!line.waiting.empty()) return line.waiting.front()();
  if (!line.aggregate->has_value()) lines_.erase(found);
}

bool RoundExecutor::busy() const {
  return std::ranges::any_of(lines_, [](const auto& run) { return !run.second.waiting.empty(); });
}

void RoundExecutor::begin(std::shared_ptr<const RunContext> context, BeginRound phase) {
  const RunId run = phase.run;
  auto work = [context = std::move(context),
               phase = std::move(phase)](std::optional<Aggregate>& aggregate) -> Result<void> {
    aggregate.reset();  // before memory is taken for the next one
    aggregate.emplace(RoundAggregate::begin(context, phase));
    return {};
  };
  this->run<void>(run, std::move(work), [](const Result<void>&) {});
}

void RoundExecutor::drop(RunId run, std::function<void()> dropped) {
  auto work = [](std::optional<Aggregate>& aggregate) -> Result<void> {
    aggregate.reset();
    return {};
  };
  this->run<void>(run, std::move(work),
                  [dropped = std::move(dropped)](const Result<void>&) { dropped(); });
}

void RoundExecutor::add(RunId run, update::ContributionHead head, update::Payload payload,
                        Completion<double> done) {
  auto work = [head = std::move(head), payload = std::move(payload),
               results = results_](std::optional<Aggregate>& aggregate) -> Result<double> {
    const auto compute = [&]() -> Result<double> {
      if (!*aggregate) return aggregate->error();
      return (**aggregate)->add(head, payload);
    };
    return results != nullptr ? results->add(compute) : compute();
  };
  this->run<double>(run, std::move(work), std::move(done));
}

void RoundExecutor::finish(RunId run, Completion<RoundOutcome> done) {
  auto work = [&evaluators = evaluators_, external = external_, results = results_,
               stop = lines_[run].evaluation.get_token()](
                  std::optional<Aggregate>& aggregate) -> Result<RoundOutcome> {
    const Aggregate finished = std::move(*std::exchange(aggregate, std::nullopt));
    const auto compute = [&]() -> Result<RoundOutcome> {
      if (!finished) return finished.error();
      return std::move(**finished).finish(&evaluators, external, stop);
    };
    return results != nullptr ? results->finish(compute) : compute();
  };
  this->run<RoundOutcome>(run, std::move(work), std::move(done));
}

void RoundExecutor::stop_evaluation(RunId run) {
  const auto line = lines_.find(run);
  if (line != lines_.end()) line->second.evaluation.request_stop();
}

void RoundExecutor::write(store::Checkpoints checkpoints, RunPosition position,
                          std::shared_ptr<const std::string> settings,
                          Completion<store::ModelRecord> done) {
  const RunId run = position.version.run;
  auto work = [checkpoints = std::move(checkpoints), position = std::move(position),
               settings = std::move(settings), results = results_](std::optional<Aggregate>&) {
    const auto compute = [&] { return write_position(checkpoints, position, *settings); };
    return results != nullptr ? results->write(compute) : compute();
  };
  this->run<store::ModelRecord>(run, std::move(work), std::move(done));
}

}  // namespace starling::coordinator

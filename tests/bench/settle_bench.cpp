// SPDX-License-Identifier: Apache-2.0
// What a frame about an old task costs the service, by the number of rounds that the run has since
// committed: ten clients a round, the database on a disk.
#include <benchmark/benchmark.h>

#include "coordinator/rounds/run_records.h"
#include "core/store/sqlite_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

constexpr std::uint64_t kCohort = 10;

Sha256Digest digest_of(Round round) { return sha256(as_bytes(std::to_string(round))); }

store::NewAttempt attempt_of(RunId run, Round round) {
  store::NewAttempt attempt{.key = {run, round, 1}, .base_model = digest_of(round - 1)};
  for (std::uint64_t k = 0; k < kCohort; ++k) {
    attempt.cohort.push_back({"client-" + std::to_string(k), TaskId(kCohort * round + k)});
  }
  return attempt;
}

void commit_rounds(store::Store& store, Round rounds) {
  const RunId run = store.submit_run({.name = "history"}, {}).value();
  if (!store.start_run(run, {.sha256 = digest_of(0)}, "", {})) return;
  for (Round round = 1; round <= rounds; ++round) {
    const store::NewAttempt attempt = attempt_of(run, round);
    store::AttemptResult result;
    for (const auto& member : attempt.cohort) {
      result.contributions.push_back({member.client, member.task, 1});
    }
    if (!store.open_attempt(attempt)) return;
    if (!store.commit_attempt(attempt.key, result, {.round = round, .sha256 = digest_of(round)})) {
      return;
    }
  }
}

void settle_the_oldest_task(benchmark::State& state) {
  const testing::TemporaryDirectory directory;
  const auto store = store::open_sqlite_store(directory.path() / "starling.db", {.create = true});
  commit_rounds(**store, static_cast<Round>(state.range(0)));
  for (auto _ : state) {
    const auto settlement = settle_task(**store, TaskId(kCohort), "client-0");
    if (!settlement || !*settlement) return state.SkipWithError("the task is not known");
  }
}
BENCHMARK(settle_the_oldest_task)->Arg(300)->Arg(2500)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace starling::coordinator

BENCHMARK_MAIN();
